// What comes from files must not control the terminal that shows it.
#include "core/printable.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Printable, LeavesUsualNamesAsTheyAre) {
  for (const char* name : {"", "runs/a b/step-000000001.state", "C:\\x", "gr\u00f6\u00dfe", "\u65e5\u672c",
                           "\U0001f600", "it's \"quoted\""})
    EXPECT_EQ(printable(name), name);
}

TEST(Printable, EscapesWhatControlsATerminalOrBreaksTheLine) {
  EXPECT_EQ(printable("a\x1b[31mred\x1b[0m"), "a\\x1b[31mred\\x1b[0m");
  EXPECT_EQ(printable("a\nb\rc\td"), "a\\nb\\rc\\td");
  EXPECT_EQ(printable(std::string_view("a\0b\x7f", 4)), "a\\x00b\\x7f");
  EXPECT_EQ(printable("\u009b31m \u0085"), "\\u{9b}31m \\u{85}") << "the controls beyond ASCII";
  EXPECT_EQ(printable("\u2028\u2029 gnp.\u202exe \u2066"), "\\u{2028}\\u{2029} gnp.\\u{202e}xe \\u{2066}");
}

TEST(Printable, EscapesBytesThatAreNoUtf8) {
  EXPECT_EQ(printable("a\xffz"), "a\\xffz");
  EXPECT_EQ(printable("\x9b"
                      "31m"),
            "\\x9b31m")
      << "one byte that some terminals take for a control";
  EXPECT_EQ(printable("\xc3"), "\\xc3") << "cut short";
  EXPECT_EQ(printable("\xc0\x9b"), "\\xc0\\x9b") << "longer than need be";
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80") << "a surrogate";
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80") << "beyond Unicode";
  EXPECT_EQ(printable("\xf8\x88\x80\x80\x80"), "\\xf8\\x88\\x80\\x80\\x80");
}

TEST(Printable, QuotesAndShortensWhatIsLong) {
  EXPECT_EQ(in_quotes("a\nb"), "\"a\\nb\"");
  EXPECT_EQ(in_quotes(std::string(80, 'x')), '"' + std::string(80, 'x') + '"');
  EXPECT_EQ(in_quotes(std::string(81, 'x')), '"' + std::string(80, 'x') + "\"...");
}

}  // namespace
}  // namespace lockstep
