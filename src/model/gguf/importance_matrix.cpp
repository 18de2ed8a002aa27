#include "tessera/model/gguf/importance_matrix.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <utility>

#include "tessera/base/json.h"
#include "tessera/base/json_fields.h"
#include "tessera/base/mapped_file.h"
#include "tessera/model/gguf/gguf_metadata.h"
#include "tessera/model/gguf/gguf_writer.h"

namespace tessera {
namespace {

constexpr const char* kType = "general.type";
constexpr const char* kTypeName = "imatrix";
constexpr const char* kDatasets = "imatrix.datasets";
constexpr const char* kChunkCount = "imatrix.chunk_count";
constexpr const char* kChunkSize = "imatrix.chunk_size";
constexpr std::string_view kSums = ".in_sum2";
constexpr std::string_view kCounts = ".counts";
constexpr std::string_view kPlainSums = ".in_sum";  // sums of the columns themselves, which quantising does not need

std::string quoted_name(std::string_view name) { return clip_text(Json(name).dump()); }

// The two tensors of an entry. A pointer is null if the file lacks the tensor.
struct Pair {
  const GgufTensor* sums = nullptr;
  const GgufTensor* counts = nullptr;
};

class ImportanceReader {
 public:
  explicit ImportanceReader(const GgufFile& file) : file_(file) {}

  Result<ImportanceMatrix> read() const {
    const GgufValue* type = file_.find(kType);
    if (type == nullptr || type->string() != kTypeName)
      return data_loss(fmt::format("{}: {} is {}; accepted: \"{}\", an importance matrix", file_.path(), kType,
                                   type != nullptr ? type->shown() : "missing", kTypeName));
    ImportanceMatrix matrix;
    matrix.source = file_.path();
    matrix.chunk_count = TRY(number(kChunkCount));
    matrix.chunk_size = TRY(number(kChunkSize));
    const GgufValue* datasets = file_.find(kDatasets);
    const auto names = datasets != nullptr ? datasets->strings() : std::nullopt;
    if (!names)
      return data_loss(fmt::format("{}: {} is {}; accepted: a list of texts", file_.path(), kDatasets,
                                   datasets != nullptr ? datasets->shown() : "missing"));
    matrix.datasets.assign(names->begin(), names->end());
    for (const auto& [name, pair] : TRY(pairs())) matrix.entries.push_back(TRY(entry(name, pair)));
    if (matrix.entries.empty())
      return data_loss(fmt::format("{}: there are no tensors; accepted: a tensor ….in_sum2 for each matrix of a model",
                                   file_.path()));
    return matrix;
  }

 private:
  Result<std::int64_t> number(const char* key) const {
    const GgufValue* value = file_.find(key);
    const std::optional<std::int64_t> number = value != nullptr ? value->integer() : std::nullopt;
    if (number && *number >= 0 && *number <= std::numeric_limits<std::uint32_t>::max()) return *number;
    return data_loss(fmt::format("{}: {} is {}; accepted: a whole number of 32 bits, at least 0", file_.path(), key,
                                 value != nullptr ? value->shown() : "missing"));
  }

  Result<std::map<std::string, Pair>> pairs() const {
    std::map<std::string, Pair> pairs;
    for (const GgufTensor& tensor : file_.tensors()) {
      const auto name_before = [&](std::string_view suffix) {
        return tensor.name.substr(0, tensor.name.size() - suffix.size());
      };
      if (tensor.name.ends_with(kSums))
        pairs[name_before(kSums)].sums = &tensor;
      else if (tensor.name.ends_with(kCounts))
        pairs[name_before(kCounts)].counts = &tensor;
      else if (!tensor.name.ends_with(kPlainSums))
        return data_loss(fmt::format("{}: tensor {}; accepted: names that end in {}, {} or {}", file_.path(),
                                     quoted_name(tensor.name), kSums, kCounts, kPlainSums));
    }
    return pairs;
  }

  Result<ImportanceEntry> entry(const std::string& name, const Pair& pair) const {
    if (pair.sums == nullptr || pair.counts == nullptr)
      return data_loss(fmt::format("{}: tensor {} is missing; its partner is there", file_.path(),
                                   quoted_name(name + std::string(pair.sums == nullptr ? kSums : kCounts))));
    ImportanceEntry entry;
    entry.name = name;
    entry.sums = TRY(values(*pair.sums));
    entry.counts = TRY(values(*pair.counts));
    const auto rows = static_cast<std::int64_t>(entry.counts.size());
    // Either each matrix (row of sums) has its own count, or a single count applies to all matrices.
    const bool misfits = rows > 1 && pair.sums->shape.back() * rows != std::ssize(entry.sums);
    if (entry.counts.empty() || entry.sums.empty() || misfits)
      return data_loss(fmt::format("{}: tensor {} has {} elements; accepted: a row for each of the {} of {}",
                                   file_.path(), quoted_name(pair.sums->name), entry.sums.size(), entry.counts.size(),
                                   quoted_name(pair.counts->name)));
    return entry;
  }

  Result<std::vector<float>> values(const GgufTensor& tensor) const {
    if (tensor.type != BlockType::kF32)
      return data_loss(fmt::format("{}: tensor {}: type is {}; accepted: F32", file_.path(), quoted_name(tensor.name),
                                   block_type_info(tensor.type).name));
    std::vector<float> values(tensor.data.size() / sizeof(float));
    std::memcpy(values.data(), tensor.data.data(), values.size() * sizeof(float));
    const auto wrong = std::ranges::find_if(values, [](float value) { return !(value >= 0) || std::isinf(value); });
    if (wrong != values.end())
      return data_loss(fmt::format("{}: tensor {}: element {} is {}; accepted: finite numbers, at least 0",
                                   file_.path(), quoted_name(tensor.name), wrong - values.begin(), *wrong));
    return values;
  }

  const GgufFile& file_;
};

// Returns a tensor's shape [rows, cols]. llama.cpp stores a single row as a vector.
std::vector<std::int64_t> shape_of(std::size_t rows, std::size_t cols) {
  const auto size = [](std::size_t number) { return static_cast<std::int64_t>(number); };
  return rows == 1 ? std::vector{size(cols)} : std::vector{size(rows), size(cols)};
}

}  // namespace

const ImportanceEntry* ImportanceMatrix::find(std::string_view name) const {
  const auto found = std::ranges::lower_bound(entries, name, {}, &ImportanceEntry::name);
  return found != entries.end() && found->name == name ? &*found : nullptr;
}

Result<ImportanceMatrix> read_importance(const std::string& path) {
  const std::shared_ptr<const MappedFile> file = TRY(MappedFile::open(path));
  Result<ImportanceMatrix> matrix = parse_importance(file->bytes(), path);
  TRY(file->check_whole());
  constexpr std::string_view kMagic = "GGUF";
  const auto* const begin = reinterpret_cast<const char*>(file->bytes().data());
  if (matrix.ok() || std::string_view(begin, file->bytes().size()).starts_with(kMagic)) return matrix;
  return data_loss(matrix.status().message() +
                   "; llama-imatrix --in-file OLD -o NEW.gguf converts a matrix in llama.cpp's older form");
}

Result<ImportanceMatrix> parse_importance(std::span<const std::byte> bytes, const std::string& path) {
  const GgufFile file = TRY(GgufFile::parse(bytes, path));
  return ImportanceReader(file).read();
}

Status write_importance(const std::string& path, ImportanceMatrix matrix) {
  std::ranges::sort(matrix.entries, {}, &ImportanceEntry::name);
  GgufMetadata metadata;
  metadata.set_string(kType, kTypeName);
  metadata.set_strings(kDatasets, matrix.datasets);
  metadata.set_uint32(kChunkCount, matrix.chunk_count);
  metadata.set_uint32(kChunkSize, matrix.chunk_size);
  std::vector<GgufLayout> layouts;
  std::vector<std::span<const std::byte>> data;
  const auto add = [&](std::string name, std::size_t rows, std::span<const float> values) {
    layouts.push_back(
        {.name = std::move(name), .type = BlockType::kF32, .shape = shape_of(rows, values.size() / rows)});
    data.push_back(std::as_bytes(values));
  };
  for (const ImportanceEntry& entry : matrix.entries) {
    add(entry.name + std::string(kSums), entry.counts.size(), entry.sums);
    add(entry.name + std::string(kCounts), entry.counts.size(), entry.counts);
  }
  const TensorContent content{.fill = [&](std::size_t index, std::int64_t offset, std::span<std::byte> to) {
    std::memcpy(to.data(), data[index].data() + offset, to.size());
    return ok_status();
  }};
  return write_gguf(path, metadata, layouts, content);
}

}  // namespace tessera
