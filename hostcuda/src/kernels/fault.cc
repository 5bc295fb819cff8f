#include "hostcuda/src/kernels/fault.h"

#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "hostcuda/src/kernels/block.h"
#include "hostcuda/src/runtime/config.h"
#include "hostcuda/src/runtime/memory.h"
#include "hostcuda/src/runtime/report.h"

namespace hostcuda {
namespace {

constexpr size_t kStackBytes = 64 << 10;

struct Fault {
  int signal = 0;
  const void* address = nullptr;  // null and not known where it can be none at all
  bool address_known = true;
  const char* access = "access";  // or read, or write
};

thread_local constinit Fault current_fault;
thread_local constinit const std::byte* shared_guard = nullptr;
thread_local constinit std::byte* spare_stack = nullptr;  // to report the overrun of a fiber's stack from
struct sigaction previous_actions[NSIG];

// What happened, for the report's head, and where. Called on the faulting thread, in the handler too.
struct Description {
  char fault[96];
  char details[192];
};

Description describe(const Fault& fault, const Block* block) {
  Description text{};
  const auto name = [&](const char* what) { std::snprintf(text.fault, sizeof text.fault, "%s", what); };
  if (fault.signal == SIGFPE) {
    name("integer division by zero");
    return text;
  }
  const auto* address = static_cast<const std::byte*>(fault.address);
  if (block != nullptr && block->running_fiber().guards(address)) {
    name("stack overflow");
    std::snprintf(text.details, sizeof text.details, "the thread's local variables do not fit its stack");
    return text;
  }
  if (shared_guard != nullptr && address >= shared_guard && address < shared_guard + sysconf(_SC_PAGESIZE)) {
    std::snprintf(text.fault, sizeof text.fault, "out-of-bounds %s", fault.access);
    std::snprintf(text.details, sizeof text.details, "byte %td past the end of dynamic shared memory",
                  address - shared_guard);
    return text;
  }
  const AddressInfo info = describe_address(address);
  char owner[32] = "the host";
  if (info.device != kPinned) std::snprintf(owner, sizeof owner, "device %d", info.device);
  const auto* base = static_cast<const std::byte*>(info.base);
  switch (info.state) {
    case AddressInfo::State::live:
      std::snprintf(text.fault, sizeof text.fault,
                    block != nullptr ? "%s of another device's memory without peer access"
                                     : "%s of device memory by the host",
                    fault.access);
      std::snprintf(text.details, sizeof text.details, "byte %td of the allocation of %zu bytes at %p on %s",
                    address - base, info.size, info.base, owner);
      break;
    case AddressInfo::State::freed:
      std::snprintf(text.fault, sizeof text.fault, "use after free (%s)", fault.access);
      std::snprintf(text.details, sizeof text.details,
                    "byte %td of the freed allocation of %zu bytes at %p on %s", address - base, info.size,
                    info.base, owner);
      break;
    case AddressInfo::State::guard: {
      std::snprintf(text.fault, sizeof text.fault, "out-of-bounds %s", fault.access);
      const bool before = address < base;
      std::snprintf(text.details, sizeof text.details,
                    "%td bytes %s of the allocation of %zu bytes at %p on %s",
                    before ? base - address : address - (base + info.size),
                    before ? "before the start" : "past the end", info.size, info.base, owner);
      break;
    }
    case AddressInfo::State::unknown:
      if (!fault.address_known) {  // x86 does not tell
        name("invalid address");
        std::snprintf(text.details, sizeof text.details,
                      "the address is none that this machine can have, or not aligned for the access");
        break;
      }
      name(reinterpret_cast<uintptr_t>(address) < 4096 ? "null pointer" : "invalid address");
      std::snprintf(text.details, sizeof text.details, "%s at %p, which is no memory of any device",
                    fault.access, fault.address);
      break;
  }
  return text;
}

// Where a faulting thread of a kernel goes on.
[[noreturn]] void give_up_kernel() {
  Block& block = *running_block();
  const Description text = describe(current_fault, &block);
  report_fault(text.fault, block.launch(), blockIdx, &block.thread_index(), text.details);
  block.leave(current_fault.signal == SIGFPE ? cudaErrorLaunchFailure : cudaErrorIllegalAddress);
}

// Makes the interrupted code go on in give_up_kernel(), below what it has on its stack.
void redirect(ucontext_t& context, bool stack_is_full) {
  const auto below = [&](uintptr_t top) {
    return stack_is_full ? reinterpret_cast<uintptr_t>(spare_stack) + kStackBytes
                         : (top - 256) & ~uintptr_t{15};
  };
#if defined(__x86_64__)
  auto& registers = context.uc_mcontext.gregs;
  registers[REG_RSP] =
      static_cast<greg_t>(below(static_cast<uintptr_t>(registers[REG_RSP])) - 8);  // as after a call
  registers[REG_RIP] = reinterpret_cast<greg_t>(&give_up_kernel);
#elif defined(__aarch64__)
  context.uc_mcontext.sp = below(context.uc_mcontext.sp);
  context.uc_mcontext.pc = reinterpret_cast<uintptr_t>(&give_up_kernel);
#else
#error "hostcuda: checked mode needs to know how to set the program counter here"
#endif
}

const char* kind_of_access([[maybe_unused]] const ucontext_t& context) {
#if defined(__x86_64__)
  return (context.uc_mcontext.gregs[REG_ERR] & 2) != 0 ? "write" : "read";
#else
  return "access";
#endif
}

void handle(int signal, siginfo_t* info, void* raw_context) {
  auto& context = *static_cast<ucontext_t*>(raw_context);
  Fault fault{signal, info->si_addr, info->si_code != SI_KERNEL,
              signal == SIGFPE ? "" : kind_of_access(context)};
  if (Block* block = running_block(); block != nullptr) {
    current_fault = fault;
    redirect(context, block->running_fiber().guards(fault.address));
    return;
  }
  if (signal != SIGFPE && describe_address(info->si_addr).state != AddressInfo::State::unknown) {
    const Description text = describe(fault, nullptr);
    char line[320];
    const int length =
        std::snprintf(line, sizeof line, "hostcuda: %s outside of a kernel: %s\n", text.fault, text.details);
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line, static_cast<size_t>(length));
  }
  // The instruction runs again, and its fault reaches the handler from before.
  sigaction(signal, &previous_actions[signal], nullptr);
}

bool install() {
  if (!config().checked) return false;
  setenv("LOCKSTEP_POOL", "0", 0);  // a caching pool would hide where a tensor ends, and that it is gone
  struct sigaction action{};
  action.sa_sigaction = handle;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE}) sigaction(signal, &action, &previous_actions[signal]);
  return true;
}

const bool installed = install();

// The two stacks of a thread, given back when it ends.
class FaultStacks {
 public:
  FaultStacks() : stacks_(new std::byte[2 * kStackBytes]) {
    spare_stack = stacks_.get() + kStackBytes;
    stack_t present{};
    sigaltstack(nullptr, &present);
    if ((present.ss_flags & SS_DISABLE) == 0) return;  // a sanitizer's
    stack_t own{};
    own.ss_sp = stacks_.get();
    own.ss_size = kStackBytes;
    installed_ = sigaltstack(&own, nullptr) == 0;
  }
  FaultStacks(const FaultStacks&) = delete;
  FaultStacks& operator=(const FaultStacks&) = delete;
  ~FaultStacks() {
    spare_stack = nullptr;
    stack_t none{};
    none.ss_flags = SS_DISABLE;
    if (installed_) sigaltstack(&none, nullptr);
  }

 private:
  std::unique_ptr<std::byte[]> stacks_;
  bool installed_ = false;
};

}  // namespace

void prepare_thread_for_faults() {
  thread_local const FaultStacks stacks;
}

void set_shared_memory_guard(const void* guard) {
  shared_guard = static_cast<const std::byte*>(guard);
}

}  // namespace hostcuda
