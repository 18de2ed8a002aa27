// Catches: a value of the option --quantization that is ignored or taken for another format; an error for this option
// that does not say what is accepted; a plan that does not say which matrices stay unquantised, and why.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/device/testing/described_device.h"
#include "tessera/device/testing/environment.h"
#include "tessera/engine/engine_options.h"
#include "tessera/engine/plan/engine_plan.h"
#include "tessera/ir/text.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

Result<EnginePlan> plan_of(const std::string& model, const std::string& quantization,
                           LoadFormat load_format = LoadFormat::kAuto, const std::string& head = "") {
  EngineOptions options{.model_path = testing::data_path(model)};
  options.quantization = quantization;
  options.load_format = load_format;
  options.lm_head_quantization = head;
  testing::DescribedDevice device({.name = "test", .memory_bytes = std::int64_t{8} << 30, .threads = 2});
  return plan_engine(options, device);
}

// Returns the facts and notes of a plan, or the error if there is no plan.
std::vector<std::string> notes_of(const std::string& model, const std::string& quantization,
                                  LoadFormat load_format = LoadFormat::kAuto) {
  const Result<EnginePlan> plan = plan_of(model, quantization, load_format);
  if (!plan.ok()) return {plan.status().message()};
  std::vector<std::string> lines = plan->facts;
  lines.insert(lines.end(), plan->notes.begin(), plan->notes.end());
  return lines;
}

TEST(QuantiseStart, OneNoteSaysWhatIsRoundedAndWhatStays) {
  for (const LoadFormat format : {LoadFormat::kAuto, LoadFormat::kDummy}) {
    EXPECT_THAT(notes_of("goldens/llama", "fp8", format),
                ElementsAre("quantised at the start: 21 matrices as FP8 e4m3, blocks of 128 × 128; 1 stay f32, lm_head "
                            "first, because published checkpoints do not quantise heads, routers and gates"));
  }
  EXPECT_THAT(notes_of("goldens/qwen3-moe", "int4"),
              ElementsAre(AllOf(HasSubstr("3 matrices as int4, groups of 128, 9 matrices as int4, groups of 32"),
                                HasSubstr("72 stay f32, model.layers.0.mlp.experts.0.gate_proj first, because their "
                                          "number of columns, 16, is not a multiple of 32"),
                                HasSubstr("model.layers.0.mlp.gate first"))));
  EXPECT_THAT(notes_of("goldens/deepseek-v3", "int8"),
              ElementsAre(HasSubstr("3 stay f32, model.layers.0.self_attn.kv_b_proj first, because latent attention")));
}

TEST(QuantiseStart, AVisionTowerStaysAsItIs) {
  const Result<EnginePlan> plan = plan_of("goldens/qwen3-vl", "fp8");
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  EXPECT_EQ(ir::to_text(plan->graphs.vision->graph).find("quantised_linear"), std::string::npos);
  EXPECT_NE(ir::to_text(plan->graphs.body).find("quantised_linear"), std::string::npos);
}

TEST(QuantiseStart, WeightsTakeAsMuchMemoryAsTheFormat) {
  const auto bytes = [](const char* format) {
    const Result<EnginePlan> plan = plan_of("goldens/llama", format);
    std::int64_t sum = 0;
    for (const WeightSpec& weight : plan->graphs.weights)
      if (weight.name.find("_proj.") != std::string::npos) sum += *ir::size_bytes(weight.type, {});
    return static_cast<double>(sum);
  };
  const double plain = bytes("");
  EXPECT_NEAR(bytes("fp8") / plain, 0.25, 0.01);
  EXPECT_NEAR(bytes("int8") / plain, 0.25, 0.02);
  EXPECT_NEAR(bytes("int4") / plain, 0.125, 0.025);
  EXPECT_NEAR(bytes("nvfp4") / plain, 0.15, 0.01);
}

TEST(QuantiseStart, AStoredFormatIsAcceptedByItsNames) {
  const auto stored = [](const char* format) {
    return ElementsAre(AllOf(StartsWith("quantised in the checkpoint: 14 matrices as "), HasSubstr(format)));
  };
  EXPECT_THAT(notes_of("quantised/qwen3-fp8-block", "fp8"), stored("FP8 e4m3, blocks of 128 × 128"));
  EXPECT_THAT(notes_of("quantised/llama-ct-w8a8", "int8"), stored("int8, a scale for each row"));
  EXPECT_THAT(notes_of("quantised/llama-awq", "int4"), stored("int4, groups of 32, zero points"));
  EXPECT_THAT(notes_of("quantised/llama-awq", "awq"), stored("int4"));
  EXPECT_THAT(notes_of("quantised/llama-ct-nvfp4", "nvfp4"), stored("NVFP4, groups of 16"));
  EXPECT_THAT(notes_of("quantised/llama-quark-mxfp4", "quark"), stored("MXFP4, groups of 32"));
  EXPECT_THAT(notes_of("quantised/llama-fbgemm-fp8", "fbgemm_fp8"), stored("FP8 e4m3, a scale for each row"));
}

TEST(QuantiseStart, OneFactSaysWhatTheCheckpointHas) {
  EXPECT_THAT(notes_of("quantised/llama-fbgemm-fp8", ""),
              ElementsAre("quantised in the checkpoint: 14 matrices as FP8 e4m3, a scale for each row, "
                          "model.layers.1.self_attn.q_proj first; 7 are stored as numbers, "
                          "model.layers.0.self_attn.q_proj first"));
  EXPECT_THAT(notes_of("quantised/llama-ct-fp8-head", ""),
              ElementsAre("quantised in the checkpoint: 15 matrices as FP8 e4m3, a scale for each row, "
                          "model.layers.0.self_attn.q_proj first"));
  EXPECT_THAT(
      notes_of("quantised/qwen3-moe-ct-mxfp4", ""),
      ElementsAre("quantised in the checkpoint: 32 matrices as MXFP4, groups of 32, "
                  "model.layers.0.self_attn.q_proj first; 3 are stored as numbers, model.layers.0.mlp.gate first"));
  EXPECT_THAT(notes_of("goldens/gpt-oss-mxfp4", ""),
              ElementsAre(HasSubstr("matrices as MXFP4, groups of 32, model.layers.0.mlp.experts.gate_up_proj first")));
  EXPECT_THAT(notes_of("goldens/llama", ""), IsEmpty());
}

TEST(QuantiseStart, OtherFormatsAreRefusedByName) {
  EXPECT_THAT(notes_of("quantised/qwen3-fp8-block", "int4"),
              ElementsAre("quantization: int4 is not accepted; the checkpoint is quantised as fp8"));
  EXPECT_THAT(notes_of("goldens/gpt-oss-mxfp4", "fp8"),
              ElementsAre("quantization: fp8 is not accepted; the checkpoint is quantised as mxfp4"));
  for (const char* name : {"awq", "gptq", "compressed-tensors", "mxfp4"})
    EXPECT_THAT(notes_of("goldens/llama", name),
                ElementsAre(AllOf(HasSubstr(name), HasSubstr("not quantised; accepted are fp8, int8, int4, nvfp4"))));
}

Result<EnginePlan> plan_with_head(const std::string& model, const std::string& format, const std::string& all = "") {
  return plan_of(model, all, LoadFormat::kAuto, format);
}

TEST(QuantiseStart, TheHeadIsQuantisedOnRequest) {
  const Result<EnginePlan> alone = plan_with_head("goldens/llama", "int8");
  ASSERT_TRUE(alone.ok()) << alone.status().to_string();
  EXPECT_THAT(alone->notes, ElementsAre("quantised at the start: 1 matrices as int8, a scale for each row"));
  EXPECT_NE(ir::to_text(alone->graphs.head).find("quantised_linear"), std::string::npos);
  EXPECT_EQ(ir::to_text(alone->graphs.body).find("quantised_linear"), std::string::npos);
  const Result<EnginePlan> both = plan_with_head("goldens/llama", "fp8", "int8");
  ASSERT_TRUE(both.ok()) << both.status().to_string();
  EXPECT_THAT(both->notes, ElementsAre(AllOf(HasSubstr("1 matrices as FP8"), HasSubstr("21 matrices as int8"))));
}

TEST(QuantiseStart, ATiedHeadBecomesAMatrixOfItsOwn) {
  const Result<EnginePlan> plan = plan_with_head("goldens/gemma3", "fp8");
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  const auto has = [&](std::string_view name) {
    return std::ranges::any_of(plan->graphs.weights, [&](const WeightSpec& spec) { return spec.name == name; });
  };
  EXPECT_TRUE(has("model.embed_tokens.weight"));
  EXPECT_NE(ir::to_text(plan->graphs.head).find("quantised_linear"), std::string::npos);
}

TEST(QuantiseStart, HeadsThatCannotBeQuantisedAreRefused) {
  const auto error = [](const std::string& model, const std::string& format) {
    const Result<EnginePlan> plan = plan_with_head(model, format);
    return plan.ok() ? std::string() : plan.status().message();
  };
  EXPECT_THAT(error("goldens/llama", "fp4"), HasSubstr("fp4 is not accepted: accepted are fp8, int8, int4, nvfp4"));
  EXPECT_THAT(error("gguf/llama3-q8_0", "fp8"), HasSubstr("a GGUF file says the type of every matrix"));
  EXPECT_THAT(error("quantised/llama-ct-fp8-head", "int8"), HasSubstr("the checkpoint stores lm_head as FP8"));
}

}  // namespace
}  // namespace tessera
