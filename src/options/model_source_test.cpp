// Catches: a folder with several GGUF files in which the chosen one is not found; an error that does not say what can
// be chosen.
#include "tessera/options/model_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/base/testing/scratch_dir.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;

Result<std::string> found(const std::string& path, const std::string& gguf_file = "") {
  ModelSource source;
  source.gguf_file = gguf_file;
  return find_model_folder(path, source, ModelContent::kWeights, {}, /*show_progress=*/false);
}

TEST(ModelSource, GgufFileOfAFolderIsChosen) {
  const test::ScratchDir dir;
  for (const char* name : {"m-Q4_0.gguf", "m-BF16-00001-of-00002.gguf", "m-BF16-00002-of-00002.gguf"})
    dir.write(name, "");
  EXPECT_EQ(*found(dir.path(), "m-Q4_0.gguf"), dir.path() + "/m-Q4_0.gguf");
  EXPECT_EQ(*found(dir.path(), "q4_0"), dir.path() + "/m-Q4_0.gguf");
  EXPECT_EQ(*found(dir.path() + ":Q4_0"), dir.path() + "/m-Q4_0.gguf");
  EXPECT_EQ(*found(dir.path() + ":BF16"), dir.path() + "/m-BF16-00001-of-00002.gguf");
  EXPECT_EQ(*found(dir.path()), dir.path());
  for (const auto& wrong : {found(dir.path() + ":Q8_0"), found(dir.path(), "Q8_0")})
    EXPECT_THAT(wrong.status().message(), HasSubstr("no GGUF file fits \"Q8_0\"; there are "));
}

}  // namespace
}  // namespace tessera
