// Which Lockstep this is.
#pragma once

namespace lockstep::apps {

const char* version();  // "0.1.0", CMake's

}  // namespace lockstep::apps
