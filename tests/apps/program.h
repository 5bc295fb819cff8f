// Runs a program as a user does, and keeps its exit code and what it printed.
#pragma once

#include <csignal>
#include <functional>
#include <string>
#include <vector>

namespace lockstep::apps {

struct Outcome {
  int exit_code;  // 128 + signal where a signal ended it
  std::string out, error;
};

// `environment`: "NAME=value" settings on top of this process's. Ended after two minutes. With
// `interrupt_after` set, `signal` is sent as soon as this text appears on the standard output.
Outcome run_program(const std::vector<std::string>& command, const std::vector<std::string>& environment = {},
                    const std::string& interrupt_after = "", int signal = SIGINT);

// The same; sends the signals, one right after the other, as soon as `when`, which is given the standard
// output so far and asked again and again, says so.
Outcome run_and_signal(const std::vector<std::string>& command, const std::vector<std::string>& environment,
                       const std::function<bool(const std::string& out)>& when,
                       const std::vector<int>& signals);

// The same with a terminal, 80 columns wide, as standard output: `out` is all that it was sent.
Outcome run_in_terminal(const std::vector<std::string>& command, const std::vector<std::string>& environment,
                        const std::function<bool(const std::string& out)>& when = nullptr,
                        const std::vector<int>& signals = {});

// Runs a program without output and ends it with kill -9 after so many microseconds. Its exit code where it
// was done before, else 128 + SIGKILL.
int run_and_kill(const std::vector<std::string>& command, const std::vector<std::string>& environment,
                 unsigned microseconds);

// Number of lines, the last one counted also without its end.
int count_lines(const std::string& text);

}  // namespace lockstep::apps
