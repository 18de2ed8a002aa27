#include "tessera/model/quantise/folder_output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <utility>

#include "tessera/base/json.h"
#include "tessera/base/write_file.h"
#include "tessera/model/model.h"
#include "tessera/model/quantise/folder_importance.h"
#include "tessera/model/weights/checkpoint.h"
#include "tessera/model/weights/model_path.h"
#include "tessera/model/weights/rounded_read.h"
#include "tessera/model/weights/safetensors.h"
#include "tessera/model/weights/weight_map.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMaxShardBytes = 5'000'000'000;  // the limit that Hugging Face's tools use
constexpr std::string_view kWeight = ".weight";

// Files that are copied, because they do not depend on how the weights are stored.
constexpr std::string_view kCopied[] = {"tokenizer.json",
                                        "tokenizer.model",
                                        "tokenizer_config.json",
                                        "special_tokens_map.json",
                                        "added_tokens.json",
                                        "vocab.json",
                                        "merges.txt",
                                        "chat_template.jinja",
                                        "chat_template.json",
                                        "generation_config.json",
                                        "preprocessor_config.json",
                                        "processor_config.json",
                                        "modules.json",
                                        "config_sentence_transformers.json",
                                        "sentence_bert_config.json"};

// A tensor to write.
struct Written {
  enum class Content : std::uint8_t { kCopy, kValues, kScales, kShape, kDivisor };

  TensorLayout layout;
  Content content = Content::kCopy;
  const StoredTensor* source = nullptr;
  std::size_t linear = 0;  // index of the tensor's linear; unused for kCopy
};

struct Shard {
  std::string name;
  std::vector<std::size_t> tensors;
};

// Returns the name of the group to which a linear belongs. Other engines concatenate the matrices of a group to one
// matrix. In NVFP4 a matrix has a single factor, by which all its block scales are multiplied. So all linears of a
// group must have the same factor.
std::string joined_name(const std::string& module) {
  const std::size_t dot = module.rfind('.') + 1;
  const std::string_view last = std::string_view(module).substr(dot);
  const std::string before = module.substr(0, dot);
  if (last == "q_proj" || last == "k_proj" || last == "v_proj") return before + "qkv";
  if (last == "gate_proj" || last == "up_proj") return before + "gate_up";
  if (last == "w1" || last == "w3") return before + "w13";
  return module;
}

class FolderOutput : public QuantisedOutput {
 public:
  FolderOutput(std::string folder, const FolderType& type, Checkpoint checkpoint)
      : folder_(std::move(folder)), type_(type), checkpoint_(std::move(checkpoint)) {}

  Status plan(const ModelConfig& config, const ir::OpTable& ops, const FamilyRegistry& families,
              const ImportanceMatrix* importance) {
    TRY(find_linears(config, ops, families));
    if (importance != nullptr) {
      importance_ = TRY(choose_folder_importance(config, folder_, checkpoint_.names(), type_, linears_, *importance));
      notes_ = importance_.notes;
    }
    std::vector<std::string> unquantised;
    for (const std::string_view name : checkpoint_.names()) {
      const StoredTensor& tensor = *checkpoint_.find(name);
      const auto linear = linear_of_.find(tensor.name);
      if (linear != linear_of_.end()) {
        add_linear(tensor, linear->second);
      } else {
        add_copy(tensor);
        if (tensor.shape.size() == 2 && tensor.name.ends_with(kWeight) && !tensor.name.ends_with("embed_tokens.weight"))
          unquantised.push_back(tensor.name.substr(0, tensor.name.size() - kWeight.size()));
      }
    }
    if (!unquantised.empty())
      notes_.push_back(fmt::format("{} matrices beside the embeddings stay as they are; the first is {}",
                                   unquantised.size(), unquantised.front()));
    divide();
    const std::string file = config_file(folder_).string();
    config_ = TRY(Json::parse(TRY(read_text_file(file)), file));
    config_.set("quantization_config", quantisation_config(type_, linears_, unquantised));
    for (const std::string_view name : kCopied) copy_too(name);
    copy_modules();
    other_bytes_ += std::ssize(config_.dump(2)) + kBlock;
    return ok_status();
  }

  Status write(const std::string& path, const std::function<Status(std::int64_t bytes)>& on_written) const override {
    const std::string temporary = fmt::format("{}.tmp-{}", fs::path(path).lexically_normal().string(), ::getpid());
    TRY(make_folder(temporary));
    Status status = write_files(temporary, on_written);
    std::error_code error;
    if (status.ok()) {
      fs::remove(path, error);  // removes `path` only if it is an empty folder
      status = rename_file(temporary, path);
    }
    if (!status.ok()) fs::remove_all(temporary, error);
    return status;
  }

 private:
  // An embedding model's modules have settings in folders like 1_Pooling. Adds these settings to the files to copy.
  void copy_modules() {
    const Result<Json> modules = Json::read_file((fs::path(folder_) / "modules.json").string());
    if (!modules.ok() || !modules->is_array()) return;
    for (const Json& module : modules->as_array()) {
      const Json* path = module.is_object() ? module.find("path") : nullptr;
      if (path == nullptr || !path->is_string() || path->as_string().empty()) continue;
      const fs::path folder = path->as_string();
      if (stays_inside(folder)) copy_too(folder / "config.json");
    }
  }
  // Adds a file of the source folder to the files to copy, if the file exists.
  void copy_too(const fs::path& file) {
    std::error_code error;
    const fs::path path = fs::path(folder_) / file;
    if (!fs::is_regular_file(path, error)) return;
    copied_.push_back(file);
    other_bytes_ += static_cast<std::int64_t>(fs::file_size(path, error)) + kBlock;
  }
  static constexpr std::int64_t kBlock = 4096;  // block size of a file system

  Status find_linears(const ModelConfig& config, const ir::OpTable& ops, const FamilyRegistry& families) {
    ModelConfig rounded = config;
    rounded.formats = config.formats.quantised_at_start(type_.format);
    const ModelGraphs graphs = TRY(build_model(rounded, {}, ops, families));
    for (const WeightSpec& spec : all_weights(graphs)) {
      for (const WeightPart& part : spec.parts) {
        const auto* storage = std::get_if<RoundedStorage>(&part.storage);
        if (storage == nullptr || storage->content != RoundedStorage::Content::kValues) continue;
        const StoredTensor stored = TRY(checkpoint_.get(part.tensor));
        const std::vector<std::int64_t>& shape = storage->numbers.tensor_shape;
        if (shape.size() != 2 || storage->numbers.col_stride != 1 || storage->cols != shape.back() ||
            !stored.name.ends_with(kWeight))
          return unimplemented(
              fmt::format("{}: tensor {} is a matrix in a stack or in another order; accepted: a tensor "
                          "for each matrix, named ….weight",
                          folder_, Json(stored.name).dump()));
        if (linear_of_.contains(stored.name)) continue;
        QuantisedLinear linear{.module = stored.name.substr(0, stored.name.size() - kWeight.size()),
                               .rows = shape[0],
                               .cols = shape[1],
                               .rounding = storage->rounding};
        if (type_.channels) {
          linear.rounding.block_rows = 1;
          linear.rounding.block_cols = linear.cols;
        }
        linear_of_.emplace(stored.name, linears_.size());
        linears_.push_back(std::move(linear));
      }
    }
    if (linears_.empty())
      return unimplemented(fmt::format("{} has no linears that {} could hold", folder_, type_.name));
    return ok_status();
  }

  void add(Written written) {
    other_bytes_ += 256 + 2 * std::ssize(written.layout.name);  // the tensor's name is in the header and in the index
    written_.push_back(std::move(written));
  }

  void tell(const StoredTensor& source, std::string to, std::int64_t bytes) {
    tensors_.push_back({.name = source.name,
                        .shape = source.shape,
                        .from = std::string(stored_dtype_name(source.dtype)),
                        .to = std::move(to),
                        .bytes_before = tensor_bytes(source.shape, source.dtype).value_or(0),
                        .bytes_after = bytes});
  }

  void add_copy(const StoredTensor& tensor) {
    tell(tensor, std::string(stored_dtype_name(tensor.dtype)), tensor_bytes(tensor.shape, tensor.dtype).value_or(0));
    add({.layout = {tensor.name, tensor.dtype, tensor.shape}, .content = Written::Content::kCopy, .source = &tensor});
  }

  void add_linear(const StoredTensor& tensor, std::size_t linear) {
    const bool divisor = linears_[linear].rounding.has_factor();
    const Written::Content contents[] = {Written::Content::kValues, Written::Content::kScales,
                                         divisor ? Written::Content::kDivisor : Written::Content::kShape};
    std::vector<TensorLayout> layouts = stored_tensors(type_, linears_[linear]);
    std::int64_t bytes = 0;
    for (std::size_t i = 0; i < layouts.size(); ++i) {
      bytes += tensor_bytes(layouts[i].shape, layouts[i].dtype).value_or(0);
      add({.layout = std::move(layouts[i]), .content = contents[i], .source = &tensor, .linear = linear});
    }
    tell(tensor, std::string(type_.description), bytes);
  }

  void divide() {
    std::int64_t bytes = 0;
    for (std::size_t i = 0; i < written_.size(); ++i) {
      const TensorLayout& layout = written_[i].layout;
      const std::int64_t of_tensor = tensor_bytes(layout.shape, layout.dtype).value_or(0);
      if (shards_.empty() || bytes + of_tensor > kMaxShardBytes) {
        shards_.emplace_back();
        bytes = 0;
      }
      shards_.back().tensors.push_back(i);
      bytes += of_tensor;
    }
    for (std::size_t i = 0; i < shards_.size(); ++i)
      shards_[i].name = shards_.size() == 1 ? std::string(kWeightFile)
                                            : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards_.size());
  }

  RoundedStorage storage_of(const QuantisedLinear& linear, RoundedStorage::Content content) const {
    return {.numbers = {.tensor_shape = {linear.rows, linear.cols},
                        .offset = 0,
                        .row_stride = linear.cols,
                        .col_stride = 1},
            .rows = linear.rows,
            .cols = linear.cols,
            .rounding = linear.rounding,
            .content = content,
            .step_rows = linear.rounding.block_rows,
            .step_cols = linear.rounding.block_cols};
  }

  // Returns each linear's factor. All linears with the same joined_name() get the greatest of their factors. The file
  // stores a factor as the rounded divisor 1 / factor. So the function returns the factor that a reader computes from
  // this divisor.
  Result<std::vector<float>> factors() const {
    std::vector<float> factors(linears_.size(), 1.0F);
    if (!linears_.front().rounding.has_factor()) return factors;
    std::map<std::string, float> joined;
    for (const Written& written : written_) {
      if (written.content != Written::Content::kDivisor) continue;
      const QuantisedLinear& linear = linears_[written.linear];
      const float own =
          TRY(read_factor(*written.source, storage_of(linear, RoundedStorage::Content::kFactor)).with_context(folder_));
      float& greatest = joined[joined_name(linear.module)];
      greatest = std::max(greatest, own);
    }
    for (std::size_t i = 0; i < linears_.size(); ++i)
      factors[i] = 1.0F / (1.0F / joined[joined_name(linears_[i].module)]);
    return factors;
  }

  Status fill(const Written& written, std::span<const float> factors, std::int64_t offset,
              std::span<std::byte> to) const {
    const StoredTensor& source = *written.source;
    if (written.content == Written::Content::kCopy) {
      std::memcpy(to.data(), source.data.data() + offset, to.size());
      return ok_status();
    }
    const QuantisedLinear& linear = linears_[written.linear];
    const float factor = factors[written.linear];
    if (written.content == Written::Content::kShape)
      return copy_bytes(std::array{linear.rows, linear.cols}, offset, to);
    if (written.content == Written::Content::kDivisor) return copy_bytes(std::array{1.0F / factor}, offset, to);
    const bool values = written.content == Written::Content::kValues;
    // Offsets of values are counted in bytes, even if the tensor's type is a 32-bit word.
    const std::int64_t unit = values ? 1 : stored_dtype_bytes(written.layout.dtype);
    const std::int64_t count = std::ssize(to) / unit;
    const SliceRuns runs{.num_runs = 1, .run = count, .stride = count, .start = offset / unit};
    const auto content = values ? RoundedStorage::Content::kValues : RoundedStorage::Content::kScales;
    const auto importance =
        importance_.linears.empty() ? std::span<const float>() : importance_.linears[written.linear];
    return read_rounded(source, storage_of(linear, content), factor, runs, to, importance).with_context(folder_);
  }

  template <class Array>
  static Status copy_bytes(const Array& values, std::int64_t offset, std::span<std::byte> to) {
    std::memcpy(to.data(), reinterpret_cast<const std::byte*>(values.data()) + offset, to.size());
    return ok_status();
  }

  Status write_files(const fs::path& folder, const std::function<Status(std::int64_t bytes)>& on_written) const {
    const std::vector<float> factors = TRY(this->factors());
    Json weight_map = Json::object();
    for (const Shard& shard : shards_) {
      std::vector<TensorLayout> layouts;
      for (const std::size_t i : shard.tensors) {
        layouts.push_back(written_[i].layout);
        if (shards_.size() > 1) weight_map.set(written_[i].layout.name, shard.name);
      }
      const TensorContent content{
          .fill = [&](std::size_t index, std::int64_t offset,
                      std::span<std::byte> to) { return fill(written_[shard.tensors[index]], factors, offset, to); },
          .on_written = on_written,
          .before_commit = [&] { return checkpoint_.check_whole(); }};
      TRY(write_safetensors((folder / shard.name).string(), layouts, content, {{"format", "pt"}}));
    }
    if (shards_.size() > 1) {
      Json index = Json::object();
      index.set("metadata", Json::object().set("total_size", bytes_after())).set("weight_map", std::move(weight_map));
      TRY(replace_file(folder / kWeightIndex, index.dump(2) + "\n"));
    }
    for (const fs::path& file : copied_) {
      TRY(make_folder((folder / file).parent_path().string()));
      TRY(replace_file(folder / file, TRY(read_text_file((fs::path(folder_) / file).string()))));
    }
    return replace_file(folder / "config.json", config_.dump(2) + "\n");
  }

  std::string folder_;
  const FolderType& type_;
  Checkpoint checkpoint_;
  std::vector<QuantisedLinear> linears_;
  std::map<std::string, std::size_t, std::less<>> linear_of_;  // the key is the stored tensor's name
  FolderImportance importance_;
  std::vector<Written> written_;
  std::vector<Shard> shards_;
  std::vector<fs::path> copied_;  // relative to the folder
  Json config_;
};

}  // namespace

Result<std::unique_ptr<QuantisedOutput>> make_folder_output(const std::string& model_path, const ModelConfig& config,
                                                            const FolderType& type, const ir::OpTable& ops,
                                                            const FamilyRegistry& families,
                                                            const ImportanceMatrix* importance) {
  const std::string folder = model_folder(model_path);
  if (config.formats.any() || (config.moe && config.moe->mxfp4))
    return unimplemented(
        fmt::format("{}: the checkpoint is quantised; accepted: weights of float32, float16 or bfloat16", folder));
  auto output = std::make_unique<FolderOutput>(folder, type, TRY(Checkpoint::open(model_path)));
  TRY(output->plan(config, ops, families, importance));
  return std::unique_ptr<QuantisedOutput>(std::move(output));
}

}  // namespace tessera
