#include "core/names.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Names, NearestIsTheOneWithTheFewestEdits) {
  const std::vector<std::string> valid{"star", "ring", "tree"};
  EXPECT_EQ(nearest_name("ring", valid), "ring");
  EXPECT_EQ(nearest_name("rign", valid), "ring");   // swapped
  EXPECT_EQ(nearest_name("rng", valid), "ring");    // left out
  EXPECT_EQ(nearest_name("treee", valid), "tree");  // one too many
  EXPECT_EQ(nearest_name("stat", valid), "star");   // replaced
  EXPECT_EQ(nearest_name("", {"chapter", "lenet"}), "lenet");
}

TEST(Names, ASwapOfNeighboursCountsAsOneEdit) {
  EXPECT_EQ(nearest_name("form", {"fort", "from"}), "fort");  // both one edit: the first
  EXPECT_EQ(nearest_name("abcd", {"abxy", "abdc"}), "abdc");  // two edits against one
}

TEST(Names, UnknownNameSaysWhatWasAskedAndWhatThereIs) {
  EXPECT_STREQ(unknown_name("--model", "clasic", {"article", "chapter", "classic"}).what(),
               "--model: unknown name 'clasic', did you mean 'classic'? (article, chapter, classic)");
}

}  // namespace
}  // namespace lockstep
