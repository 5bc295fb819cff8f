#include "apps/common/interrupt.h"

#include <csignal>

namespace lockstep::apps {
namespace {

volatile std::sig_atomic_t flag = 0;

extern "C" void on_signal(int signal) {
  flag = 1;
  std::signal(signal, SIG_DFL);
}

}  // namespace

void catch_interrupts() {
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
}

bool interrupted() {
  return flag != 0;
}

}  // namespace lockstep::apps
