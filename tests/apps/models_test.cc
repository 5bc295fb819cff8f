// Models by name: a description builds the model it names, and comes back complete.
#include "apps/common/models.h"

#include <gtest/gtest.h>

#include "tests/error_of.h"

namespace lockstep::apps {
namespace {

int64_t parameters(const ModelDescription& description) {
  return named_model(description).make(make_devices(1)[0])->parameter_count();
}

TEST(NamedModels, BuildWhatTheDescriptionSays) {
  EXPECT_EQ(parameters({{"model", "lenet"}}), 44'426);
  EXPECT_EQ(parameters({{"model", "lenet"}, {"variant", "chapter"}}), 129'068);
  EXPECT_EQ(parameters({{"model", "lenet"}, {"variant", "classic"}}), 61'706);
  EXPECT_EQ(parameters({{"model", "resnet18"}}), 11'175'818);
  // torchvision's own number.
  EXPECT_EQ(parameters({{"model", "resnet18"},
                        {"variant", "torchvision"},
                        {"stem", "imagenet"},
                        {"classes", "1000"},
                        {"channels", "3"}}),
            11'689'512);
}

TEST(NamedModels, DescriptionsComeBackCompleteAndWithoutWhatIsNotTheModels) {
  const ModelDescription complete =
      named_model({{"model", "resnet18"}, {"stem", "imagenet"}, {"format", "lockstep 1"}}).description;
  EXPECT_EQ(complete, (ModelDescription{{"model", "resnet18"},
                                        {"stem", "imagenet"},
                                        {"variant", "chapter"},
                                        {"classes", "10"},
                                        {"channels", "1"}}));
  EXPECT_EQ(named_model(complete).description, complete);
  EXPECT_EQ(title(complete), "resnet18 (stem imagenet, variant chapter)");
}

TEST(NamedModels, UnknownNamesAndValuesAreRefused) {
  EXPECT_EQ(error_of([] { named_model({{"model", "resnet81"}}); }),
            "model: unknown name 'resnet81', did you mean 'resnet18'? (lenet, resnet18)");
  EXPECT_EQ(error_of([] { named_model({{"model", "lenet"}, {"variant", "calssic"}}); }),
            "variant of lenet: unknown name 'calssic', did you mean 'classic'? (article, chapter, classic)");
  for (const char* number : {"0", "-3", "ten", "10x", "", "99999999999999999999"})
    EXPECT_EQ(error_of([&] { named_model({{"model", "resnet18"}, {"classes", number}}); }),
              "classes of resnet18 is '" + std::string(number) + "': use 1 or more");
  EXPECT_EQ(error_of([] { named_model({{"format", "lockstep 1"}}); }), "there is no name of a model");
}

}  // namespace
}  // namespace lockstep::apps
