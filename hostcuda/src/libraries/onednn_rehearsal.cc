#include "hostcuda/src/libraries/onednn_rehearsal.h"

#include "hostcuda/src/runtime/scheduler.h"

namespace hostcuda::onednn {

void rehearse(const std::function<void()>& call) {
  call();
  wait_for_work_at_exit();
}

}  // namespace hostcuda::onednn
