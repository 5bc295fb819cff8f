// When oneDNN makes its own objects, and what that means for the end of the process.
#pragma once

#include <functional>

namespace hostcuda::onednn {

// oneDNN makes objects (generated code, caches) in the first call of each kind and shape, and the process
// destroys them at exit, the last one first, before it comes to what was made earlier: before hostcuda's own
// handler, which waits for running work. So a kind's first call is run here, on the calling thread and on
// scratch memory, before a worker runs one; after it the handler is registered once more, and comes first.
void rehearse(const std::function<void()>& call);

}  // namespace hostcuda::onednn
