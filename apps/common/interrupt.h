// Ctrl-C asks for a clean end: the loop looks between two steps.
#pragma once

namespace lockstep::apps {

inline constexpr int kExitInterrupted = 130;  // what a shell reports for Ctrl-C

// From now on SIGINT and SIGTERM only set a flag; a second one ends the process as usual.
void catch_interrupts();
bool interrupted();

}  // namespace lockstep::apps
