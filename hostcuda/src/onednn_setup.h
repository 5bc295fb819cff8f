// oneDNN's own objects: when they are made, and what that means for the end of the process.
#pragma once

namespace hostcuda::onednn {

// Makes what oneDNN makes at its first calls (generated code, its cache of primitives), once a process; every
// handle calls it. Objects go at exit in the reverse order of their making, while workers may still be in a
// product. What is made here goes after exit has waited for running work; what a worker's own first call made
// would go before.
void set_up();

}  // namespace hostcuda::onednn
