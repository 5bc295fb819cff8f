#include "apps/common/version.h"

namespace lockstep::apps {

const char* version() {
  return LOCKSTEP_VERSION;
}

}  // namespace lockstep::apps
