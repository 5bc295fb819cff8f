#include "core/names.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Names, NearestIsTheOneWithTheFewestEdits) {
  const std::vector<std::string> valid{"star", "ring", "tree"};
  EXPECT_EQ(near_name("ring", valid), "ring");
  EXPECT_EQ(near_name("rign", valid), "ring");   // swapped
  EXPECT_EQ(near_name("rng", valid), "ring");    // left out
  EXPECT_EQ(near_name("treee", valid), "tree");  // one too many
  EXPECT_EQ(near_name("stat", valid), "star");   // replaced
  EXPECT_EQ(near_name("touchvison", {"chapter", "torchvision"}), "torchvision");
}

TEST(Names, ASwapOfNeighboursCountsAsOneEdit) {
  EXPECT_EQ(near_name("form", {"fort", "from"}), "fort");  // both one edit: the first
  EXPECT_EQ(near_name("abcd", {"abxy", "abdc"}), "abdc");  // two edits against one
}

TEST(Names, NothingIsSuggestedThatIsFarAway) {
  EXPECT_EQ(near_name("", {"chapter", "lr"}), std::nullopt);
  EXPECT_EQ(near_name("foo", {"--lr", "lenet"}), std::nullopt);
  EXPECT_EQ(near_name("norm", {"lenet", "resnet18"}), std::nullopt);
  EXPECT_EQ(near_name("--acumulate", {"--schedule", "--checkpoint"}), std::nullopt);
  EXPECT_EQ(near_name("ring", {}), std::nullopt);
  EXPECT_STREQ(unknown_name("--model", "norm", {"lenet", "resnet18"}).what(),
               "--model: unknown name 'norm': use one of these: (lenet, resnet18)");
}

TEST(Names, UnknownNameSaysWhatWasAskedAndWhatThereIs) {
  EXPECT_STREQ(unknown_name("--model", "clasic", {"article", "chapter", "classic"}).what(),
               "--model: unknown name 'clasic', did you mean 'classic'? (article, chapter, classic)");
}

}  // namespace
}  // namespace lockstep
