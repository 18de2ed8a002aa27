// Catches: a written folder whose weights differ from those that an engine makes when it quantises the source at its
// start; tensors whose format the config does not describe.
#include "tessera/model/quantise/folder_output.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <map>

#include "tessera/base/testing/paths.h"
#include "tessera/base/testing/scratch_dir.h"
#include "tessera/device/cpu/cpu_device.h"
#include "tessera/model/config/embedding_config.h"
#include "tessera/model/gguf/importance_matrix.h"
#include "tessera/model/model.h"
#include "tessera/model/weights/tensor_copy.h"
#include "tessera/model/weights/weights.h"
#include "tessera/ops/built_in_ops.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;

std::string golden_source(const char* name) { return testing::data_path(std::string("goldens/") + name); }

// Returns the bytes of every weight of a model. The keys are the weights' names.
std::map<std::string, std::string> loaded_weights(const ModelConfig& config, const std::string& path) {
  auto checkpoint = std::make_shared<const Checkpoint>(*Checkpoint::open(path));
  ModelOptions options;
  if (!config.formats.at_start())
    options.stored_type = [checkpoint](std::string_view tensor) -> std::optional<StoredDtype> {
      const StoredTensor* stored = checkpoint->find(tensor);
      return stored != nullptr ? std::optional(stored->dtype) : std::nullopt;
    };
  const Result<ModelGraphs> graphs = build_model(config, options, built_in_ops(), built_in_families());
  EXPECT_TRUE(graphs.ok()) << graphs.status().to_string();
  std::map<std::string, std::string> all;
  if (!graphs.ok()) return all;
  const std::unique_ptr<CpuDevice> device = *CpuDevice::create({.threads = 1});
  const Result<Weights> weights = Weights::load(graphs->weights, checkpoint_source(checkpoint), *device, false);
  EXPECT_TRUE(weights.ok()) << weights.status().to_string();
  if (!weights.ok()) return all;
  for (const WeightSpec& spec : graphs->weights)
    all[spec.name].assign(reinterpret_cast<const char*>(weights->addresses().at(spec.name).raw()),
                          static_cast<std::size_t>(*ir::size_bytes(spec.type, {})));
  return all;
}

Status write_folder(const std::string& source, const char* type, const std::string& path,
                    const ImportanceMatrix* importance = nullptr) {
  const auto output = plan_quantised(source, type, built_in_ops(), built_in_families(), importance);
  return output.ok() ? (*output)->write(path, {}) : output.status();
}

struct FolderCase {
  const char* golden;
  const char* type;
  StartFormat format;
};

class FolderOutputs : public ::testing::TestWithParam<FolderCase> {};

TEST_P(FolderOutputs, WeightsAreThoseOfAQuantisingStart) {
  const std::string source = golden_source(GetParam().golden);
  const test::ScratchDir dir;
  const std::string path = dir.path() + "/out";
  const Status status = write_folder(source, GetParam().type, path);
  ASSERT_TRUE(status.ok()) << status.to_string();
  const auto config = ModelConfig::read(path, built_in_families());
  ASSERT_TRUE(config.ok()) << config.status().to_string();
  ModelConfig at_start = *ModelConfig::read(source, built_in_families());
  at_start.formats = at_start.formats.quantised_at_start(GetParam().format);
  const auto got = loaded_weights(*config, path);
  const auto want = loaded_weights(at_start, source);
  ASSERT_EQ(got.size(), want.size());
  for (const auto& [name, bytes] : want) {
    ASSERT_TRUE(got.contains(name)) << name;
    EXPECT_EQ(got.at(name).size(), bytes.size()) << name;
    // In a written folder, linears that other engines join, such as q, k and v, have the same NVFP4 factor. An engine
    // that quantises at its start gives each linear its own factor, so the scales differ.
    EXPECT_TRUE(GetParam().format == StartFormat::kNvfp4 || got.at(name) == bytes) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Goldens, FolderOutputs,
                         ::testing::Values(FolderCase{"qwen3", "fp8", StartFormat::kFp8},
                                           FolderCase{"qwen3", "int8", StartFormat::kInt8},
                                           FolderCase{"qwen3", "int4", StartFormat::kInt4},
                                           FolderCase{"qwen3", "nvfp4", StartFormat::kNvfp4},
                                           FolderCase{"llama-bias", "int8", StartFormat::kInt8},
                                           FolderCase{"qwen3-moe", "fp8", StartFormat::kFp8},
                                           FolderCase{"qwen3-moe", "int4", StartFormat::kInt4},
                                           FolderCase{"mixtral", "int8", StartFormat::kInt8},
                                           FolderCase{"phi3", "int8", StartFormat::kInt8},
                                           FolderCase{"qwen3.5-text", "fp8", StartFormat::kFp8}),
                         [](const auto& given) {
                           std::string name = std::string(given.param.golden) + given.param.type;
                           std::erase_if(name, [](char c) { return c == '-' || c == '.'; });
                           return name;
                         });

TEST(FolderOutput, ChannelsHaveScalesOfTheirOwn) {
  const test::ScratchDir dir;
  const std::string path = dir.path() + "/out";
  ASSERT_TRUE(write_folder(golden_source("qwen3"), "fp8-dynamic", path).ok());
  const Checkpoint checkpoint = *Checkpoint::open(path);
  const std::string module = "model.layers.0.self_attn.q_proj.";
  EXPECT_EQ(checkpoint.find(module + "weight")->dtype, StoredDtype::kF8E4M3);
  EXPECT_THAT(checkpoint.find(module + "weight_scale")->shape, ::testing::ElementsAre(128, 1));
  EXPECT_FALSE(loaded_weights(*ModelConfig::read(path, built_in_families()), path).empty());
}

TEST(FolderOutput, JoinedLinearsShareAFactor) {
  const test::ScratchDir dir;
  const std::string path = dir.path() + "/out";
  ASSERT_TRUE(write_folder(golden_source("qwen3"), "nvfp4", path).ok());
  const Checkpoint checkpoint = *Checkpoint::open(path);
  const auto divisor = [&](const char* module) {
    float value = 0;
    std::memcpy(&value, checkpoint.find(std::string("model.layers.1.") + module + ".weight_global_scale")->data.data(),
                sizeof value);
    return value;
  };
  EXPECT_EQ(divisor("self_attn.q_proj"), divisor("self_attn.v_proj"));
  EXPECT_EQ(divisor("mlp.gate_proj"), divisor("mlp.up_proj"));
  EXPECT_NE(divisor("self_attn.q_proj"), divisor("self_attn.o_proj"));
}

// Returns an importance matrix for all linears of the layers of a golden model (goldens/). In each linear, one column
// in eight has a hundred times the importance of the others.
ImportanceMatrix uneven_importance(const ModelConfig& config) {
  ImportanceMatrix matrix{.source = "i.gguf", .datasets = {}, .entries = {}};
  const std::int64_t hidden = config.hidden_size;
  const std::pair<const char*, std::int64_t> kTensors[] = {
      {"attn_k", hidden},
      {"attn_output", config.num_attention_heads * config.head_dim},
      {"attn_q", hidden},
      {"attn_v", hidden},
      {"ffn_down", config.intermediate_size},
      {"ffn_gate", hidden},
      {"ffn_up", hidden}};
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    for (const auto& [name, cols] : kTensors) {
      ImportanceEntry entry{.name = fmt::format("blk.{}.{}.weight", layer, name), .sums = {}, .counts = {1}};
      for (std::int64_t i = 0; i < cols; ++i) entry.sums.push_back(i * 5 % 8 == 0 ? 100.0F : 1.0F);
      matrix.entries.push_back(std::move(entry));
    }
  }
  return matrix;
}

template <class Element>
std::vector<Element> elements_of(const Checkpoint& checkpoint, const std::string& name) {
  const StoredTensor& tensor = *checkpoint.find(name);
  std::vector<Element> elements(tensor.data.size() / sizeof(Element));
  std::memcpy(elements.data(), tensor.data.data(), tensor.data.size());
  return elements;
}

// Returns the weighted squared error Σ importance · (x − value)² of a linear that was written in int4. The importances
// are those of uneven_importance().
double weighted_error(const Checkpoint& source, const Checkpoint& written, const std::string& module) {
  const StoredTensor& tensor = *source.find(module + ".weight");
  std::vector<float> x(static_cast<std::size_t>(tensor.num_elements()));
  EXPECT_TRUE(copy_tensor(tensor, StoredDtype::kF32, std::as_writable_bytes(std::span(x))).ok());
  const auto values = elements_of<std::uint8_t>(written, module + ".weight_packed");
  const auto scales = elements_of<float>(written, module + ".weight_scale");
  const std::size_t group = x.size() / scales.size();
  const auto cols = static_cast<std::size_t>(tensor.shape[1]);
  double sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const int code = values[i / 2] >> (4 * (i % 2)) & 15;
    const double difference = double{x[i]} - double{scales[i / group]} * (code - 8);
    sum += (i % cols * 5 % 8 == 0 ? 100 : 1) * difference * difference;
  }
  return sum;
}

TEST(FolderOutput, ImportanceReducesTheWeightedErrorOfEachLinear) {
  const test::ScratchDir dir;
  const std::string source = golden_source("qwen3");
  const ImportanceMatrix matrix = uneven_importance(*ModelConfig::read(source, built_in_families()));
  ASSERT_TRUE(write_folder(source, "int4", dir.path() + "/plain").ok());
  const Status status = write_folder(source, "int4", dir.path() + "/searched", &matrix);
  ASSERT_TRUE(status.ok()) << status.to_string();
  const Checkpoint original = *Checkpoint::open(source);
  const Checkpoint plain = *Checkpoint::open(dir.path() + "/plain");
  const Checkpoint searched = *Checkpoint::open(dir.path() + "/searched");
  EXPECT_EQ(plain.names(), searched.names());
  for (const char* module : {"self_attn.q_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.down_proj"}) {
    const std::string name = std::string("model.layers.1.") + module;
    EXPECT_LE(weighted_error(original, searched, name), 0.9 * weighted_error(original, plain, name)) << name;
  }
}

TEST(FolderOutput, Nvfp4WithImportanceLoadsOtherWeights) {
  const test::ScratchDir dir;
  const std::string source = golden_source("qwen3");
  const ImportanceMatrix matrix = uneven_importance(*ModelConfig::read(source, built_in_families()));
  ASSERT_TRUE(write_folder(source, "nvfp4", dir.path() + "/plain").ok());
  const Status status = write_folder(source, "nvfp4", dir.path() + "/searched", &matrix);
  ASSERT_TRUE(status.ok()) << status.to_string();
  const auto weights = [&](const std::string& path) {
    return loaded_weights(*ModelConfig::read(path, built_in_families()), path);
  };
  const auto plain = weights(dir.path() + "/plain");
  const auto searched = weights(dir.path() + "/searched");
  ASSERT_FALSE(searched.empty());
  EXPECT_EQ(plain.size(), searched.size());
  EXPECT_NE(plain, searched);
}

TEST(FolderOutput, TypesOfEightBitsRefuseImportance) {
  const test::ScratchDir dir;
  const ImportanceMatrix matrix{.source = "i.gguf", .datasets = {}, .entries = {}};
  for (const char* type : {"fp8", "fp8-dynamic", "int8"}) {
    const Status status = write_folder(golden_source("qwen3"), type, dir.path() + "/out", &matrix);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << type;
    EXPECT_THAT(status.message(), HasSubstr("accepted: int4, nvfp4, or a type of GGUF files")) << type;
  }
}

TEST(FolderOutput, RefusesWhatIsQuantisedOrStacked) {
  const test::ScratchDir dir;
  const std::string path = dir.path() + "/out";
  const auto refused = [&](const std::string& source, const char* words) {
    const Status status = write_folder(source, "int8", path);
    EXPECT_EQ(status.code(), StatusCode::kUnimplemented) << status.to_string();
    EXPECT_THAT(status.message(), HasSubstr(words));
  };
  refused(golden_source("gpt-oss"), "is a matrix in a stack");
  refused(golden_source("gpt-oss-mxfp4"), "the checkpoint is quantised");
  refused(testing::data_path("gguf/qwen3-q4_0"), "the input is a GGUF file; accepted: a folder with safetensors");
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

TEST(FolderOutput, EmbeddingModelsKeepTheirPooling) {
  const test::ScratchDir dir;
  const std::string path = dir.path() + "/out";
  ASSERT_TRUE(write_folder(golden_source("qwen3-embedding"), "fp8", path).ok());
  const auto pooling = [](const std::string& folder) { return EmbeddingConfig::read(folder, 64); };
  const auto before = pooling(golden_source("qwen3-embedding"));
  const auto after = pooling(path);
  ASSERT_TRUE(before.ok() && after.ok() && *before && *after) << after.status().to_string();
  EXPECT_EQ((*after)->pooling, (*before)->pooling);
  EXPECT_EQ((*after)->normalise, (*before)->normalise);
}

TEST(FolderOutput, FailedWriteLeavesNothing) {
  const test::ScratchDir dir;
  const std::string path = dir.path() + "/out";
  const auto output = plan_quantised(golden_source("qwen3"), "int8", built_in_ops(), built_in_families());
  ASSERT_TRUE(output.ok()) << output.status().to_string();
  EXPECT_EQ((*output)->write(path, [](std::int64_t) { return cancelled("stopped"); }).message(), "stopped");
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

}  // namespace
}  // namespace tessera
