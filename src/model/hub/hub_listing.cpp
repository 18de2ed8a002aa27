#include "tessera/model/hub/hub_listing.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>

#include "tessera/base/json.h"
#include "tessera/base/json_fields.h"
#include "tessera/model/hub/hub_cache.h"
#include "tessera/model/weights/weight_map.h"

namespace tessera {
namespace {

bool is_hex(std::string_view text, std::size_t digits) {
  return text.size() == digits && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

const std::string* string_at(const Json& json, std::string_view key) {
  const Json* value = json.find(key);
  return value != nullptr && value->is_string() ? &value->as_string() : nullptr;
}

bool has_plain_parts(std::string_view name) {
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find('/', begin), name.size());
    if (!is_plain_name(name.substr(begin, end - begin))) return false;
    begin = end + 1;
  }
  return true;
}

Result<HubFile> parse_file(const Json& entry, const std::string& name, const std::string& what) {
  HubFile file{.name = name, .digest = {}};
  const Json* lfs = entry.find("lfs");
  file.is_lfs = lfs != nullptr && lfs->is_object();
  const Json& source = file.is_lfs ? *lfs : entry;
  const Json* size = source.find("size");
  const std::string* digest = string_at(source, file.is_lfs ? "sha256" : "blobId");
  if (size == nullptr || !size->is_int() || size->as_int() < 0) {
    return data_loss(
        fmt::format("{}: size of \"{}\" is {}; accepted: a number of bytes", what, name, shown_value(size)));
  }
  if (digest == nullptr || !is_hex(*digest, file.is_lfs ? 64 : 40)) {
    return data_loss(
        fmt::format("{}: \"{}\" has no digest: {} is {}", what, name, file.is_lfs ? "sha256" : "blobId",
                    digest == nullptr ? "missing" : shown_value(source.find(file.is_lfs ? "sha256" : "blobId"))));
  }
  file.size = size->as_int();
  file.digest = *digest;
  return file;
}

// Returns whether an engine may read the file although it lies in a subfolder. These are GGUF files, and files of the
// form "1_Pooling/config.json", to which an embedding model's modules.json refers.
bool is_read_from_subfolder(std::string_view name) {
  const bool is_pooling_config = name.ends_with("_Pooling/config.json") && name.find('/') == name.rfind('/');
  return is_pooling_config || name.ends_with(".gguf");
}

bool is_shard(const HubFile& file) { return shard_number(file.name).has_value(); }

}  // namespace

const HubFile* HubListing::find(std::string_view name) const {
  const auto it = std::find_if(files.begin(), files.end(), [&](const HubFile& file) { return file.name == name; });
  return it == files.end() ? nullptr : &*it;
}

Result<HubListing> parse_hub_listing(std::string_view text, const std::string& what) {
  Result<Json> json = Json::parse(text, what);
  if (!json.ok()) return data_loss(json.status().message());
  HubListing listing;
  const std::string* commit = string_at(*json, "sha");
  const Json* siblings = json->find("siblings");
  if (commit == nullptr || !is_hex(*commit, 40) || siblings == nullptr || !siblings->is_array())
    return data_loss(fmt::format("{}: the answer is no model of a hub: \"sha\" or \"siblings\" is missing", what));
  listing.commit = *commit;
  for (const Json& entry : siblings->as_array()) {
    const std::string* name = string_at(entry, "rfilename");
    if (name == nullptr || !has_plain_parts(*name)) {
      return data_loss(fmt::format("{}: the file name {} is not accepted; one that stays in its folder is", what,
                                   shown_value(entry.find("rfilename"))));
    }
    if (name->find('/') != std::string::npos && !is_read_from_subfolder(*name)) continue;
    HubFile file = TRY(parse_file(entry, *name, what));
    listing.files.push_back(std::move(file));
  }
  return listing;
}

std::vector<HubFile> small_files(const HubListing& listing) {
  static constexpr std::array<std::string_view, 3> kEndings = {".json", ".model", ".jinja"};
  std::vector<HubFile> files;
  for (const HubFile& file : listing.files) {
    const auto ends = [&](std::string_view ending) { return file.name.ends_with(ending); };
    if (std::any_of(kEndings.begin(), kEndings.end(), ends)) files.push_back(file);
  }
  return files;
}

Status check_has_weights(const HubListing& listing) {
  static constexpr std::array<std::string_view, 6> kOthers = {".safetensors", ".bin", ".pth", ".pt", ".gguf", ".onnx"};
  if (listing.find(kWeightFile) != nullptr || listing.find(kWeightIndex) != nullptr ||
      std::any_of(listing.files.begin(), listing.files.end(), is_shard))
    return ok_status();
  std::vector<std::string> others;
  for (const HubFile& file : listing.files) {
    const auto ends = [&](std::string_view ending) { return file.name.ends_with(ending); };
    if (others.size() < 8 && std::any_of(kOthers.begin(), kOthers.end(), ends)) others.push_back(file.name);
  }
  const bool gguf = std::ranges::any_of(others, [](const std::string& name) { return name.ends_with(".gguf"); });
  return not_found(fmt::format("there are no weights that can be read: {} and none of {}, {} or model-*.safetensors{}",
                               others.empty() ? "no weights" : fmt::format("{}", fmt::join(others, ", ")), kWeightFile,
                               kWeightIndex, gguf ? "; name one of the GGUF files by its type: org/name:Q4_K_M" : ""));
}

Result<std::vector<HubFile>> weight_files(const HubListing& listing,
                                          const std::map<std::string, std::string>& weight_map) {
  std::vector<HubFile> files;
  if (const HubFile* one = listing.find(kWeightFile); one != nullptr) return std::vector{*one};
  if (weight_map.empty()) {
    std::copy_if(listing.files.begin(), listing.files.end(), std::back_inserter(files), is_shard);
    return files;
  }
  std::set<std::string> shards;
  for (const auto& [tensor, shard] : weight_map) shards.insert(shard);
  for (const std::string& shard : shards) {
    const HubFile* file = listing.find(shard);
    if (file == nullptr)
      return data_loss(fmt::format("{} names the shard {}, which the model does not have", kWeightIndex, shard));
    files.push_back(*file);
  }
  return files;
}

}  // namespace tessera
