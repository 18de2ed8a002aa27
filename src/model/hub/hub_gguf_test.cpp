// Catches: a file that is chosen although it belongs to another model of the repository than the selected one; a model
// in several GGUF files of which only some are chosen.
#include "tessera/model/hub/hub_gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::vector<std::string>& repository() {
  static const std::vector<std::string> kNames = {"README.md",
                                                  "Qwen3-0.6B-Q4_K_M.gguf",
                                                  "Qwen3-0.6B-UD-Q4_K_XL.gguf",
                                                  "Qwen3-0.6B.Q8_0.gguf",
                                                  "mmproj-F16.gguf",
                                                  "Qwen3-0.6B-BF16-00002-of-00002.gguf",
                                                  "Qwen3-0.6B-BF16-00001-of-00002.gguf",
                                                  "Qwen3-0.6B-F16.gguf"};
  return kNames;
}

TEST(HubGguf, NamesHaveAnIdAndAType) {
  const auto plain = parse_hub_name("Qwen/Qwen3-0.6B-GGUF");
  ASSERT_TRUE(plain.has_value());
  EXPECT_EQ(plain->id, "Qwen/Qwen3-0.6B-GGUF");
  EXPECT_EQ(plain->gguf, "");
  const auto typed = parse_hub_name("Qwen/Qwen3-0.6B-GGUF:Q4_K_M");
  ASSERT_TRUE(typed.has_value());
  EXPECT_EQ(typed->id, "Qwen/Qwen3-0.6B-GGUF");
  EXPECT_EQ(typed->gguf, "Q4_K_M");
  for (const char* wrong : {"", ":Q4_0", "a/b:", "/models/m.gguf", "a/b/c:Q4_0"})
    EXPECT_FALSE(parse_hub_name(wrong).has_value()) << wrong;
}

TEST(HubGguf, TypesAndFileNamesFindOneModel) {
  EXPECT_THAT(*choose_gguf(repository(), "Q4_K_M"), ElementsAre("Qwen3-0.6B-Q4_K_M.gguf"));
  EXPECT_THAT(*choose_gguf(repository(), "q8_0"), ElementsAre("Qwen3-0.6B.Q8_0.gguf"));
  EXPECT_THAT(*choose_gguf(repository(), "Q4_K_XL"), ElementsAre("Qwen3-0.6B-UD-Q4_K_XL.gguf"));
  EXPECT_THAT(*choose_gguf(repository(), "F16"), ElementsAre("Qwen3-0.6B-F16.gguf"));
  EXPECT_THAT(*choose_gguf(repository(), "Qwen3-0.6B-Q4_K_M.gguf"), ElementsAre("Qwen3-0.6B-Q4_K_M.gguf"));
}

TEST(HubGguf, SplitSetsComeWhole) {
  for (const char* which : {"bf16", "Qwen3-0.6B-BF16-00002-of-00002.gguf"})
    EXPECT_THAT(*choose_gguf(repository(), which),
                ElementsAre("Qwen3-0.6B-BF16-00001-of-00002.gguf", "Qwen3-0.6B-BF16-00002-of-00002.gguf"));
}

// Repositories keep large models, which are split sets, in a folder for each type.
TEST(HubGguf, ModelsInSubfoldersAreFound) {
  const std::vector<std::string> names = {"BF16/m-BF16-00001-of-00002.gguf", "BF16/m-BF16-00002-of-00002.gguf",
                                          "m-Q4_0.gguf", "vision/mmproj-F16.gguf", "Q8_0/Q8_0.gguf"};
  for (const char* which : {"bf16", "m-BF16-00002-of-00002.gguf", "BF16/m-BF16-00001-of-00002.gguf"})
    EXPECT_THAT(*choose_gguf(names, which), ElementsAre(names[0], names[1])) << which;
  EXPECT_THAT(*choose_gguf(names, "Q8_0"), ElementsAre("Q8_0/Q8_0.gguf"));
  EXPECT_THAT(projectors_of(names), ElementsAre("vision/mmproj-F16.gguf"));
  EXPECT_FALSE(choose_gguf(names, "F16").ok()) << "a projector is no model";
}

TEST(HubGguf, FilesOutsideOfSubfoldersComeFirst) {
  const std::vector<std::string> names = {"m-Q4_0.gguf", "old/m-Q4_0.gguf", "old/m-Q8_0.gguf", "mmproj-F16.gguf",
                                          "old/mmproj-F16.gguf"};
  for (const char* which : {"m-Q4_0.gguf", "q4_0"}) EXPECT_THAT(*choose_gguf(names, which), ElementsAre(names[0]));
  EXPECT_THAT(*choose_gguf(names, "old/m-Q4_0.gguf"), ElementsAre(names[1]));
  EXPECT_EQ(*choose_projector(names, "", names[0]), "mmproj-F16.gguf");
  EXPECT_EQ(*choose_projector(names, "", names[1]), "old/mmproj-F16.gguf");
  const std::vector<std::string> apart = {"BF16/m-BF16.gguf", "m-Q4_0.gguf", "vision/mmproj-F16.gguf"};
  EXPECT_EQ(*choose_projector(apart, "", apart[0]), std::nullopt) << "a load would not find it there";
}

TEST(HubGguf, OtherNamesAreErrorsThatListWhatIsThere) {
  const auto none = choose_gguf(repository(), "Q5_0");
  EXPECT_EQ(none.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(none.status().message(), HasSubstr("\"Q5_0\"; there are Qwen3-0.6B-Q4_K_M, "));
  const std::vector<std::string> two = {"a-Q4_0.gguf", "b-Q4_0.gguf"};
  const auto both = choose_gguf(two, "Q4_0");
  EXPECT_EQ(both.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(both.status().message(), HasSubstr("a-Q4_0.gguf, b-Q4_0.gguf"));
}

TEST(HubGguf, TheOnlyOrTheNamedProjectorIsFetched) {
  EXPECT_EQ(*choose_projector(repository(), "", "m-Q4_0.gguf"), "mmproj-F16.gguf");
  EXPECT_EQ(*choose_projector(repository(), "mmproj-F16.gguf", "m-Q4_0.gguf"), "mmproj-F16.gguf");
  const std::vector<std::string> several = {"m-Q4_0.gguf", "mmproj-F16.gguf", "mmproj-BF16.gguf"};
  EXPECT_EQ(*choose_projector(several, "", "m-Q4_0.gguf"), std::nullopt);
  EXPECT_EQ(*choose_projector(several, "mmproj-BF16.gguf", "m-Q4_0.gguf"), "mmproj-BF16.gguf");
  EXPECT_THAT(projectors_of(several), ElementsAre("mmproj-BF16.gguf", "mmproj-F16.gguf"));
  const auto none = choose_projector(several, "mmproj-Q8_0.gguf", "m-Q4_0.gguf");
  EXPECT_EQ(none.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(none.status().message(), HasSubstr("there are mmproj-BF16.gguf, mmproj-F16.gguf"));
}

}  // namespace
}  // namespace tessera
