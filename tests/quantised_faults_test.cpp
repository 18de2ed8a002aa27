// Catches: a faulty quantised checkpoint that is served, or whose error does not name the tensor, the value and what is
// accepted. Each case changes one thing in a golden checkpoint and starts an engine with it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <map>

#include "golden.h"
#include "tessera/base/testing/scratch_dir.h"
#include "tessera/engine/engine.h"
#include "tessera/model/weights/safetensors.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;
using D = StoredDtype;

struct OwnTensor {
  StoredDtype dtype;
  std::vector<std::int64_t> shape;
  std::vector<std::byte> bytes;

  template <class T>
  void set(std::size_t at, T value) {
    std::memcpy(bytes.data() + at * sizeof(T), &value, sizeof(T));
  }
};
using Tensors = std::map<std::string, OwnTensor>;

// One change of tensors or of "quantization_config", and the expected error.
struct Fault {
  const char* golden;
  std::function<void(Tensors&, Json&)> change;
  std::vector<std::string> parts;  // parts of the expected message
};

Json settings(const char* text) { return *Json::parse(text, "settings"); }

// Returns the error of an engine that is started with the changed checkpoint.
Status start_with(const Fault& fault) {
  const std::string folder = testing::data_path(std::string("quantised/") + fault.golden);
  const Checkpoint checkpoint = *Checkpoint::open(folder);
  Tensors tensors;
  for (const std::string_view name : checkpoint.names()) {
    const StoredTensor& stored = *checkpoint.find(name);
    tensors[std::string(name)] = {stored.dtype, stored.shape, {stored.data.begin(), stored.data.end()}};
  }
  Json config = *Json::read_file(folder + "/config.json");
  Json quantisation = *config.find("quantization_config");
  fault.change(tensors, quantisation);
  config.set("quantization_config", quantisation);
  const test::ScratchDir dir;
  dir.write("config.json", config.dump());
  std::vector<StoredTensor> views;
  for (const auto& [name, tensor] : tensors) views.push_back({name, tensor.dtype, tensor.shape, tensor.bytes});
  const Status written = write_safetensors(dir.path() + "/model.safetensors", views);
  EXPECT_TRUE(written.ok()) << written.to_string();
  EngineOptions options{.model_path = dir.path(), .device = "cpu", .dtype = "float32"};
  options.context_length = 64;
  options.max_running_requests = 2;
  options.chunked_prefill_size = 16;
  options.graphs.piecewise_tokens = {16};
  return Engine::create(options).status();
}

// Returns a fault that sets an element of a tensor whose values have type T.
template <class T>
std::function<void(Tensors&, Json&)> set(const std::string& tensor, std::size_t at, T value) {
  return [=](Tensors& tensors, Json&) { tensors.at(tensor).set(at, value); };
}
std::function<void(Tensors&, Json&)> drop(const std::string& tensor) {
  return [=](Tensors& tensors, Json&) { ASSERT_EQ(tensors.erase(tensor), 1U); };
}
// Returns a fault that removes the last row of a matrix, or the last element of a vector.
std::function<void(Tensors&, Json&)> shorten(const std::string& tensor) {
  return [=](Tensors& tensors, Json&) {
    OwnTensor& t = tensors.at(tensor);
    t.bytes.resize(t.bytes.size() / static_cast<std::size_t>(t.shape[0]) * static_cast<std::size_t>(t.shape[0] - 1));
    --t.shape[0];
  };
}
// Returns a fault that declares another element type of the same size.
std::function<void(Tensors&, Json&)> retype(const std::string& tensor, StoredDtype dtype) {
  return [=](Tensors& tensors, Json&) { tensors.at(tensor).dtype = dtype; };
}
std::function<void(Tensors&, Json&)> settings_are(const char* text) {
  return [=](Tensors&, Json& quantisation) { quantisation = settings(text); };
}

class QuantisedFaults : public ::testing::TestWithParam<Fault> {};

TEST_P(QuantisedFaults, AreErrorsThatNameTheTensor) {
  const Status status = start_with(GetParam());
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.code(), StatusCode::kInternal) << status.to_string();
  for (const std::string& part : GetParam().parts) EXPECT_THAT(status.message(), HasSubstr(part));
}

TEST(QuantisedFault, TheUnchangedCheckpointsAreServed) {
  for (const char* golden : {"llama-fbgemm-fp8", "qwen3-gptq", "qwen3-awq", "llama-ct-w8a8", "llama-ct-nvfp4",
                             "gemma4-nvfp4-modelopt", "qwen3-moe-ct-mxfp4", "llama-quark-mxfp4"}) {
    const Status status = start_with({golden, [](Tensors&, Json&) {}, {}});
    EXPECT_TRUE(status.ok()) << golden << ": " << status.to_string();
  }
}

const std::string kUp = "model.layers.1.mlp.up_proj.";
const std::string kExpert = "model.layers.1.mlp.experts.2.down_proj.";
const std::string kGemma = "model.language_model.layers.0.mlp.up_proj.";
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

INSTANTIATE_TEST_SUITE_P(
    Fp8, QuantisedFaults,
    ::testing::Values(
        Fault{"llama-fbgemm-fp8", drop(kUp + "weight_scale"), {kUp + "weight_scale\" is missing", "F32, F16, BF16"}},
        Fault{"llama-fbgemm-fp8", shorten(kUp + "weight_scale"), {kUp + "weight_scale\" has 127 scales", "128"}},
        Fault{
            "llama-fbgemm-fp8", set(kUp + "weight_scale", 3, 0.0F), {kUp + "weight_scale\": scale 3 is 0", "above 0"}},
        Fault{"llama-fbgemm-fp8", set(kUp + "weight_scale", 4, -1.0F), {kUp + "weight_scale\": scale 4 is -1"}},
        Fault{"llama-fbgemm-fp8", set(kUp + "weight_scale", 5, kNan), {kUp + "weight_scale\": scale 5 is nan"}},
        Fault{"llama-fbgemm-fp8", set(kUp + "weight_scale", 6, kInfinity), {kUp + "weight_scale\": scale 6 is inf"}},
        Fault{"llama-fbgemm-fp8", retype(kUp + "weight_scale", D::kI32), {kUp + "weight_scale\" is I32", "F32"}},
        Fault{"llama-fbgemm-fp8", retype(kUp + "weight", D::kI8), {kUp + "weight\" is I8", "F8_E4M3"}},
        Fault{"qwen3-fp8-block",
              [](Tensors& tensors, Json&) {
                OwnTensor& scales = tensors.at(kUp + "weight_scale_inv");
                scales.dtype = D::kF8E8M0;
                scales.bytes.resize(scales.bytes.size() / sizeof(float));
              },
              {kUp + "weight_scale_inv\" is F8_E8M0", "F32, F16, BF16"}},
        Fault{"llama-ct-w8a8", retype(kUp + "weight", D::kF8E4M3), {kUp + "weight\" is F8_E4M3", "I8"}}));

INSTANTIATE_TEST_SUITE_P(
    FourBits, QuantisedFaults,
    ::testing::Values(
        Fault{"llama-ct-nvfp4", set(kUp + "weight_scale", 7, std::uint8_t{0}), {kUp + "weight_scale\": a scale is 0"}},
        Fault{"llama-ct-nvfp4", set(kUp + "weight_scale", 7, std::uint8_t{0x7f}), {kUp + "weight_scale\"", "nan"}},
        Fault{"llama-ct-nvfp4", set(kUp + "weight_scale", 7, std::uint8_t{0xb8}), {kUp + "weight_scale\"", "is -1"}},
        Fault{"llama-ct-nvfp4", shorten(kUp + "weight_scale"), {kUp + "weight_scale", "[255, 8]", "[256, 8]"}},
        Fault{
            "llama-ct-nvfp4", set(kUp + "weight_global_scale", 0, 0.0F), {kUp + "weight_global_scale\": scale 0 is 0"}},
        Fault{"gemma4-nvfp4-modelopt", set(kGemma + "weight_scale_2", 0, kNan), {kGemma + "weight_scale_2\"", "nan"}},
        Fault{"gemma4-nvfp4-modelopt", drop(kGemma + "weight_scale_2"), {kGemma + "weight_scale_2\" is missing"}},
        Fault{"gemma4-nvfp4-modelopt", retype(kGemma + "weight_scale", D::kU8), {kGemma + "weight_scale\" is U8"}},
        Fault{"qwen3-moe-ct-mxfp4",
              set(kExpert + "weight_scale", 1, std::uint8_t{255}),
              {kExpert + "weight_scale\"", "255", "0 to 254"}},
        Fault{
            "qwen3-moe-ct-mxfp4", shorten(kExpert + "weight_scale"), {kExpert + "weight_scale", "[63, 3]", "[64, 3]"}},
        Fault{"qwen3-moe-ct-mxfp4",
              drop(kExpert + "weight_scale"),
              {kExpert + "weight_scale\" is missing", "U8, F8_E8M0"}},
        Fault{"qwen3-moe-ct-mxfp4",
              retype(kExpert + "weight_packed", D::kI8),
              {kExpert + "weight_packed\" is I8", "MXFP4"}},
        Fault{"llama-quark-mxfp4",
              set(kUp + "weight_scale", 1, std::uint8_t{255}),
              {kUp + "weight_scale\": scale 1 is nan"}}));

INSTANTIATE_TEST_SUITE_P(
    Int4, QuantisedFaults,
    ::testing::Values(
        Fault{"qwen3-awq", drop(kUp + "qzeros"), {kUp + "qzeros\" is missing", "I32"}},
        Fault{"qwen3-awq", shorten(kUp + "qzeros"), {kUp + "qzeros", "[1, 16]", "[2, 16]"}},
        Fault{"qwen3-awq", shorten(kUp + "scales"), {kUp + "scales\" has 128 scales", "256"}},
        Fault{"qwen3-awq", set(kUp + "scales", 9, std::uint16_t{0x8000}), {kUp + "scales\": scale 9 is -0"}},
        Fault{"qwen3-awq", retype(kUp + "qweight", D::kF32), {kUp + "qweight\" is F32", "I32"}},
        Fault{"qwen3-awq",
              settings_are(R"({"quant_method": "awq", "bits": 4, "group_size": 64, "zero_point": true})"),
              {"model.layers.0.self_attn.q_proj.", "accepted"}},
        Fault{"qwen3-gptq",
              [](Tensors& tensors, Json& quantisation) {
                quantisation.set("desc_act", true);
                tensors.erase(kUp + "g_idx");
              },
              {kUp + "g_idx\" is missing", "I32"}},
        Fault{"qwen3-gptq",
              [](Tensors& tensors, Json& quantisation) {
                quantisation.set("desc_act", true);
                tensors.at(kUp + "g_idx").set(5, std::int32_t{4});
              },
              {kUp + "g_idx\": element 5 is 4", "0 to 3"}}));

INSTANTIATE_TEST_SUITE_P(
    Settings, QuantisedFaults,
    ::testing::Values(
        Fault{"llama-fbgemm-fp8",
              settings_are(R"({"quant_method": "exotic"})"),
              {"quant_method", "exotic", "fbgemm_fp8"}},
        Fault{"qwen3-awq", settings_are(R"({"quant_method": "fp8"})"), {"q_proj.qweight\" is I32", "F8_E4M3"}},
        Fault{"llama-quark-mxfp4",
              settings_are(R"({"quant_method": "modelopt", "quant_algo": "NVFP4"})"),
              {"q_proj.weight_scale\" is U8", "F8_E4M3"}},
        Fault{"llama-fbgemm-fp8",
              [](Tensors& tensors, Json&) {
                OwnTensor& plain = tensors.at("model.layers.0.mlp.up_proj.weight");
                tensors["model.layers.0.mlp.up_proj.weight_scale"] = {D::kF32, {1}, std::vector<std::byte>(4)};
                ASSERT_EQ(plain.dtype, D::kBF16);
              },
              {"model.layers.0.mlp.up_proj.weight_scale\" is F32", "no such tensor beside \"weight\" of BF16"}}));

}  // namespace
}  // namespace tessera
