// Ctrl-C and its kin ask for a clean end: a run looks between two steps, and between two batches of an
// evaluation.
#pragma once

#include <string>

namespace lockstep::apps {

inline constexpr int kExitInterrupted = 130;  // what a shell reports for Ctrl-C

// From now on the first SIGINT, SIGTERM or SIGHUP writes `notice`, a line, to standard error at once and
// makes interrupted() true; a second one of them ends the process as usual. One that comes within half a
// second counts as the first: `timeout` and others send a signal to the process and to its group. A signal
// that is ignored now, as under nohup, stays ignored.
void catch_interrupts(const std::string& notice);
bool interrupted();

}  // namespace lockstep::apps
