// Standard output, written with care: what cannot be written (a full disk, a closed descriptor) is an error,
// not silence; and an error comes after what was printed before it. A closed pipe ends a program as it ends
// others: by SIGPIPE, without a word.
#pragma once

#include <string>

namespace lockstep::apps {

// To be called first, before a file is opened. Where a standard stream was closed by whoever started the
// program, the next file would get its number, and with it what is printed: puts something there that cannot
// be written.
void reserve_standard_streams();

// Writes what has been printed so far. Throws Error where that, or anything printed before, failed.
void flush_output();

// A line of standard error, after what has been printed so far. Where that is gone nobody can be told, and
// nothing is thrown: a run goes on, and an error keeps its exit code.
void print_notice(const std::string& line) noexcept;

}  // namespace lockstep::apps
