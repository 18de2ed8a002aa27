// Catches: weights that are widened to float32 because config.json names no type (GPT-OSS's names none); and a plan
// that does not tell the user that the model computes in float32 on a GPU although no option asks for it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tessera/base/testing/scratch_dir.h"
#include "tessera/engine/plan/engine_plan_test_util.h"
#include "tessera/model/weights/safetensors.h"

namespace tessera {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

// Plans a model whose config names no type. Its checkpoint has a vector of 4 float32 values, and a second vector of
// `others` values of the type `other`.
EnginePlan plan_unnamed(StoredDtype other, std::int64_t others, const DeviceProperties& device,
                        LoadFormat format = LoadFormat::kAuto) {
  const test::ScratchDir folder;
  Json config = *Json::read_file(test::kGoldens + "llama/config.json");
  config.set("dtype", Json());
  folder.write("config.json", config.dump());
  const std::vector<std::byte> data(64);
  const auto bytes = static_cast<std::size_t>(others * stored_dtype_bytes(other));
  const std::vector<StoredTensor> tensors{{"a", StoredDtype::kF32, {4}, std::span(data).first(16)},
                                          {"b", other, {others}, std::span(data).first(bytes)}};
  EXPECT_TRUE(write_safetensors(folder.path() + "/model.safetensors", tensors).ok());
  return test::plan(
      [&](EngineOptions& o) {
        o.model_path = folder.path();
        o.load_format = format;
      },
      device);
}

TEST(PlanTypes, UnnamedTypeIsThatOfMostWeights) {
  EXPECT_EQ(plan_unnamed(StoredDtype::kBF16, 5, test::any_gpu()).model.dtype, ir::DType::kBFloat16);
  EXPECT_EQ(plan_unnamed(StoredDtype::kF16, 5, test::any_gpu()).model.dtype, ir::DType::kFloat16);
  EXPECT_EQ(plan_unnamed(StoredDtype::kBF16, 3, test::any_gpu()).model.dtype, ir::DType::kFloat32);
  EXPECT_EQ(plan_unnamed(StoredDtype::kU8, 30, test::any_gpu()).model.dtype, ir::DType::kFloat32);
  EXPECT_EQ(plan_unnamed(StoredDtype::kBF16, 5, test::cpu(/*native_bf16=*/true)).model.dtype, ir::DType::kBFloat16);
  EXPECT_EQ(plan_unnamed(StoredDtype::kBF16, 5, test::cpu()).model.dtype, ir::DType::kFloat32);
}

TEST(PlanTypes, UnnamedTypeWithoutWeightsIsBfloat16) {
  const test::ScratchDir folder;
  Json config = *Json::read_file(test::kGoldens + "llama/config.json");
  config.set("dtype", Json());
  folder.write("config.json", config.dump());
  EXPECT_EQ(test::plan([&](EngineOptions& o) { o.model_path = folder.path(); }, test::any_gpu()).model.dtype,
            ir::DType::kBFloat16);
}

TEST(PlanTypes, UnnamedTypeOfRandomWeightsIsBfloat16) {
  EXPECT_EQ(plan_unnamed(StoredDtype::kF32, 1, test::any_gpu(), LoadFormat::kDummy).model.dtype, ir::DType::kBFloat16);
}

TEST(PlanTypes, Float32IsNotedOnGpusUnlessAskedFor) {
  const auto note = Contains(HasSubstr("the model computes in float32, as it is stored"));
  EXPECT_THAT(plan_unnamed(StoredDtype::kF32, 1, test::any_gpu()).notes, note);
  EXPECT_THAT(plan_unnamed(StoredDtype::kBF16, 5, test::any_gpu()).notes, Not(note));
  EXPECT_THAT(plan_unnamed(StoredDtype::kF32, 1, test::cpu()).notes, Not(note));
  EXPECT_THAT(test::plan([](EngineOptions& o) { o.dtype = "float32"; }, test::any_gpu()).notes, Not(note));
}

}  // namespace
}  // namespace tessera
