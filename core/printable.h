// Text that somebody else wrote (the content of a file, or its name) on its way into a message.
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

// `text` with what would control a terminal, break the line or turn its direction written as an escape
// ("\n", "\x1b", "\u{202e}"), and bytes that are no UTF-8 too. All else, backslashes included, stays as it
// is, so that a usual name is shown, and can be copied, unchanged.
std::string printable(std::string_view text);

// The same in quotes, and not without end: after 80 bytes "..." stands for the rest.
std::string in_quotes(std::string_view text);

}  // namespace lockstep
