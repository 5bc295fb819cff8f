// Memory faults in checked mode. A kernel that touches what it must not (memory.h leaves it inaccessible)
// gets a signal; the handler names the access and gives the kernel up as a GPU would, and the program goes on
// with cudaErrorIllegalAddress. A fault outside of a kernel is described and then left to whoever handled it
// before.
#pragma once

namespace hostcuda {

// Lets the handler run on a stack of its own on the calling thread, which may have overrun its own.
void prepare_thread_for_faults();

// The page behind a block's dynamic shared memory, for the calling thread.
void set_shared_memory_guard(const void* guard);

}  // namespace hostcuda
