#include "tessera/model/gguf/gguf_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <span>
#include <utility>
#include <variant>

#include "tessera/base/json.h"
#include "tessera/base/json_fields.h"
#include "tessera/model/gguf/find_projector.h"
#include "tessera/model/weights/weight_map.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kExtension = ".gguf";
constexpr std::int64_t kMaxMembers = 99999;

// A file's position in a split set, parsed from its name.
struct Member {
  std::string before;  // path up to the number: "models/NAME-"
  std::int64_t index = 0;
  std::int64_t count = 0;

  std::string path_of(std::int64_t i) const { return fmt::format("{}{:05}-of-{:05}{}", before, i, count, kExtension); }
};

// Parses "NAME-00002-of-00003.gguf".
std::optional<Member> member_of(const std::string& path) {
  constexpr std::size_t kDigits = 5;
  constexpr std::string_view kOf = "-of-";
  constexpr std::size_t kTail = 2 * kDigits + kOf.size();
  const std::size_t name = path.size() - kExtension.size();
  if (!path.ends_with(kExtension) || name < kTail + 1 || path[name - kTail - 1] != '-') return std::nullopt;
  const std::string_view tail = std::string_view(path).substr(name - kTail, kTail);
  if (tail.substr(kDigits, kOf.size()) != kOf) return std::nullopt;
  Member member{.before = path.substr(0, name - kTail)};
  const auto number = [](std::string_view digits, std::int64_t& value) {
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    return error == std::errc() && end == digits.data() + digits.size() && value > 0;
  };
  if (!number(tail.substr(0, kDigits), member.index) || !number(tail.substr(kDigits + kOf.size()), member.count) ||
      member.index > member.count)
    return std::nullopt;
  return member;
}

std::optional<std::int64_t> integer_of(const GgufFile& file, std::string_view key) {
  const GgufValue* value = file.find(key);
  return value != nullptr ? value->integer() : std::nullopt;
}

// Checks that the metadata of a split set's member state the same index and count as the file's name. `index` counts
// from 1.
Status check_member(const GgufFile& file, std::int64_t index, std::int64_t count) {
  const std::optional<std::int64_t> no = integer_of(file, "split.no");
  const std::optional<std::int64_t> says = integer_of(file, "split.count");
  if (no == index - 1 && says == count) return ok_status();
  return data_loss(fmt::format("{}: split.no is {} and split.count {}; accepted: {} and {}, as the file's name says",
                               file.path(), no ? fmt::format("{}", *no) : "missing",
                               says ? fmt::format("{}", *says) : "missing", index - 1, count));
}

Status check_tensor_count(const std::vector<GgufFile>& files) {
  std::int64_t found = 0;
  std::map<std::string_view, const GgufFile*> owners;
  for (const GgufFile& file : files) {
    found += std::ssize(file.tensors());
    for (const GgufTensor& tensor : file.tensors()) {
      const auto [it, inserted] = owners.emplace(tensor.name, &file);
      if (!inserted)
        return data_loss(fmt::format("tensor {} is in two files: {} and {}", clip_text(Json(tensor.name).dump()),
                                     it->second->path(), file.path()));
    }
  }
  for (const GgufFile& file : files) {
    const std::optional<std::int64_t> says = integer_of(file, "split.tensors.count");
    if (says && *says != found)
      return data_loss(fmt::format("{}: split.tensors.count is {}; accepted: {}, the number of tensors in the {} files",
                                   file.path(), *says, found, files.size()));
  }
  return ok_status();
}

template <class T>
std::string bytes_of(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

// Returns the type and the bytes that a file has for the value.
std::pair<GgufType, std::string> stored_value(const GgufOverride& given) {
  if (const auto* number = std::get_if<std::int64_t>(&given.value)) return {GgufType::kInt64, bytes_of(*number)};
  if (const auto* number = std::get_if<double>(&given.value)) return {GgufType::kFloat64, bytes_of(*number)};
  if (const auto* flag = std::get_if<bool>(&given.value))
    return {GgufType::kBool, bytes_of(static_cast<std::uint8_t>(*flag))};
  const std::string& text = std::get<std::string>(given.value);
  return {GgufType::kString, bytes_of(static_cast<std::uint64_t>(text.size())) + text};
}

}  // namespace

Result<GgufModel> GgufModel::open(const std::string& path, const GgufOptions& options) {
  GgufModel model;
  const std::optional<Member> member = member_of(path);
  const std::int64_t count = member ? member->count : 1;
  for (std::int64_t i = 1; i <= count; ++i) {
    const std::string of_member = member ? member->path_of(i) : path;
    Result<GgufFile> file = GgufFile::open(of_member);
    if (!file.ok() && file.status().code() == StatusCode::kNotFound && member)
      return not_found(fmt::format("{}: file {} of {} is missing: {}", path, i, count, of_member));
    model.files_.push_back(TRY(std::move(file)));
    // A single file is not checked here, because a file named "…-00001-of-00001" may have no split metadata. If it has
    // a split.count, the check below refuses a count above 1.
    if (count > 1) TRY(check_member(model.files_.back(), i, count));
  }
  const std::int64_t says = integer_of(model.files_.front(), "split.count").value_or(1);
  if (count == 1 && says > 1)
    return data_loss(
        fmt::format("{}: split.count is {}; accepted: a name that ends in -00001-of-{:05}.gguf, by which "
                    "the other files are found",
                    path, says, std::min(says, kMaxMembers)));
  TRY(check_tensor_count(model.files_));
  if (!options.projector.empty()) model.projector_ = std::make_shared<const GgufModel>(TRY(open(options.projector)));
  if (!options.overrides.empty()) {
    auto overrides = std::make_shared<Overrides>();
    for (const GgufOverride& given : options.overrides) {
      auto [type, bytes] = stored_value(given);
      Override& added =
          overrides->emplace_back(Override{given.key, std::move(bytes), GgufValue(type, std::nullopt, {})});
      added.value = GgufValue(type, std::nullopt, std::as_bytes(std::span(added.bytes)));
    }
    model.overrides_ = std::move(overrides);
  }
  return model;
}

GgufModel GgufModel::of(GgufFile file, std::optional<GgufFile> projector) {
  GgufModel model;
  model.files_.push_back(std::move(file));
  if (projector) model.projector_ = std::make_shared<const GgufModel>(of(*std::move(projector)));
  return model;
}

const GgufValue* GgufModel::find(std::string_view key) const {
  if (overrides_ != nullptr) {
    const auto given = std::ranges::find(*overrides_, key, &Override::key);
    if (given != overrides_->end()) return &given->value;
  }
  return files_.front().find(key);
}

const GgufTensor* GgufModel::find_tensor(std::string_view name) const {
  for (const GgufFile& file : files_)
    if (const GgufTensor* tensor = file.find_tensor(name)) return tensor;
  return nullptr;
}

Status GgufModel::wrong(const std::string& key, std::string_view accepted) const {
  const GgufValue* value = find(key);
  return invalid_argument(fmt::format("{}: metadata {} is {}; accepted: {}", path(), key,
                                      value != nullptr ? value->shown() : "missing", accepted));
}

Result<std::optional<std::string>> GgufModel::optional_string(const std::string& key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::optional<std::string>();
  const std::optional<std::string_view> text = value->string();
  if (!text) return wrong(key, "a string");
  return std::optional<std::string>(*text);
}

Result<std::optional<std::int64_t>> GgufModel::optional_integer(const std::string& key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::optional<std::int64_t>();
  std::optional<std::int64_t> number = value->integer();
  if (const auto list = value->integers();
      list && !list->empty() && std::ranges::count(*list, list->front()) == std::ssize(*list))
    number = list->front();
  if (!number || *number < 0 || *number > kMaxInteger)
    return wrong(key, fmt::format("an integer from 0 to {}, or a list of equal ones", kMaxInteger));
  return number;
}

Result<std::optional<double>> GgufModel::optional_number(const std::string& key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::optional<double>();
  const std::optional<double> number = value->number();
  if (!number) return wrong(key, "a number");
  return number;
}

Result<std::optional<bool>> GgufModel::optional_boolean(const std::string& key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::optional<bool>();
  const std::optional<bool> flag = value->boolean();
  if (!flag) return wrong(key, "true or false");
  return flag;
}

Result<std::string> GgufModel::string(const std::string& key) const {
  const std::optional<std::string> value = TRY(optional_string(key));
  if (!value) return wrong(key, "a string");
  return *value;
}

Result<std::int64_t> GgufModel::integer(const std::string& key) const {
  const std::optional<std::int64_t> value = TRY(optional_integer(key));
  if (!value) return wrong(key, "an integer");
  return *value;
}

bool is_split_name(const std::string& path) { return path.ends_with(kExtension) && member_of(path).has_value(); }

Result<std::optional<std::string>> find_gguf(const std::string& model_path) {
  using Found = std::optional<std::string>;
  std::error_code error;
  if (!fs::is_directory(model_path, error)) return model_path.ends_with(kExtension) ? Found(model_path) : Found();
  std::vector<std::string> models;
  for (fs::directory_iterator it(model_path, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name == kWeightFile || name == kWeightIndex || shard_number(name)) return Found();
    if (!name.ends_with(kExtension) || is_projector_name(name)) continue;
    const std::optional<Member> member = member_of(it->path().string());
    if (!member || member->index == 1) models.push_back(it->path().string());
  }
  if (error) return not_found(fmt::format("cannot list {}: {}", model_path, error.message()));
  std::ranges::sort(models);
  if (models.size() > 1) {
    for (std::string& model : models) model = fs::path(model).filename().string();
    return invalid_argument(fmt::format("{} holds {} models in GGUF files; accepted: the path of one of them: {}",
                                        model_path, models.size(), fmt::join(models, ", ")));
  }
  return models.empty() ? Found() : Found(models.front());
}

}  // namespace tessera
