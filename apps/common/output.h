// What programs write. Standard output, with care: what cannot be written (a full disk, a closed descriptor)
// is an error, not silence; and an error comes after what was printed before it. A closed pipe ends a program
// as it ends others: by SIGPIPE, without a word. And what can be known about a file to write before the work
// that fills it.
#pragma once

#include <filesystem>
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

// Throws Error where the folder of `path` is not there or may not be written into, or `path` is a folder or
// "-".
void check_can_be_written(const std::filesystem::path& path);

// Throws Error where `out` is the file `in`, which would be lost, or "-".
void check_other_file(const std::filesystem::path& out, const std::filesystem::path& in);

}  // namespace lockstep::apps
