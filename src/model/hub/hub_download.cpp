#include "tessera/model/hub/hub_download.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "tessera/base/json.h"
#include "tessera/base/log.h"
#include "tessera/base/progress.h"
#include "tessera/base/write_file.h"
#include "tessera/model/hub/hub_blob.h"
#include "tessera/model/hub/hub_gguf.h"
#include "tessera/model/hub/hub_http.h"
#include "tessera/model/hub/hub_listing.h"
#include "tessera/model/weights/weight_map.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxListingBytes = 64U << 20U;

std::string without_slash(std::string url) {
  while (url.ends_with('/')) url.pop_back();
  return url;
}

// Escapes a file name for a URL. The slashes between folders are kept.
std::string escaped_path(const fs::path& name) {
  std::string escaped;
  for (const fs::path& part : name) escaped += (escaped.empty() ? "" : "/") + url_escaped(part.string());
  return escaped;
}

Result<std::string> find_token(const HubSettings& settings) {
  std::error_code error;
  if (!settings.token.empty() || !fs::is_regular_file(settings.token_file, error)) return settings.token;
  std::string token = TRY(read_text_file(settings.token_file));
  constexpr std::string_view kBlank = " \t\r\n";
  token.erase(token.find_last_not_of(kBlank) + 1);
  token.erase(0, token.find_first_not_of(kBlank));
  return token;
}

// The download of one model.
class Pull {
 public:
  static Result<Pull> create(const HubSettings& settings, const HubModel& model, const PullOptions& options) {
    HubFolder folder = TRY(HubFolder::of(settings, model));
    if (settings.offline) return failed_precondition(fmt::format("{} is not fetched: HF_HUB_OFFLINE is set", model.id));
    std::string token = TRY(find_token(settings));
    HttpClient client =
        TRY(HttpClient::create(
                {.endpoint = without_slash(settings.endpoint), .token = std::move(token), .ca_file = settings.ca_file})
                .with_context("the hub's address (HF_ENDPOINT)"));
    return Pull(std::move(folder), model, options, std::move(client));
  }

  Result<std::string> run() {
    listing_ = TRY(fetch_listing());
    if (!model_.gguf.empty()) return fetch_gguf();
    const bool weights = options_.content == ModelContent::kWeights;
    if (weights) TRY(check_has_weights(listing_));
    TRY(fetch(small_files(listing_)));
    if (weights) {
      const std::vector<HubFile> files = TRY(find_weights());
      TRY(fetch(files));
    }
    TRY(finish());
    return snapshot().string();
  }

 private:
  Pull(HubFolder folder, const HubModel& model, const PullOptions& options, HttpClient client)
      : folder_(std::move(folder)), model_(model), options_(options), client_(std::move(client)) {}

  // Downloads one model in GGUF format, and the projector for images. GGUF models need no other files.
  Result<std::string> fetch_gguf() {
    std::vector<std::string> names;
    for (const HubFile& file : listing_.files) names.push_back(file.name);
    const std::vector<std::string> chosen = TRY(choose_gguf(names, model_.gguf));
    std::vector<HubFile> files;
    for (const std::string& name : chosen) files.push_back(*listing_.find(name));
    if (!model_.without_projector) {
      const std::optional<std::string> projector = TRY(choose_projector(names, model_.projector, chosen.front()));
      if (projector) files.push_back(*listing_.find(*projector));
      if (const std::vector<std::string> several = projectors_of(names); !projector && !several.empty())
        log_warn(
            "hub",
            "{} has projectors ({}) and none alone beside the model, so none is fetched and prompts have no images; "
            "--mmproj names one",
            model_.id, fmt::join(several, ", "));
    }
    TRY(fetch(files));
    TRY(finish());
    return (snapshot() / chosen.front()).string();
  }

  // Makes the revision point to the commit. Precondition: all files of the commit are complete.
  Status finish() const {
    if (model_.revision == listing_.commit) return ok_status();
    const fs::path ref = folder_.ref(model_.revision);
    TRY(make_folder(ref.parent_path()));
    return replace_file(ref, listing_.commit);
  }

  fs::path snapshot() const { return folder_.snapshots() / listing_.commit; }
  const std::string& endpoint() const { return client_.options().endpoint; }

  Result<HubListing> fetch_listing() {
    const std::string url =
        fmt::format("{}/api/models/{}/revision/{}?blobs=true", endpoint(), model_.id, url_escaped(model_.revision));
    std::string text;
    const auto begin = [&](const HttpReply&) {
      text.clear();
      return ok_status();
    };
    const auto write = [&](std::string_view bytes) {
      text += bytes;
      if (text.size() <= kMaxListingBytes) return ok_status();
      return data_loss(fmt::format("{}: the list of files is longer than {} bytes", url, kMaxListingBytes));
    };
    const HttpReply reply = TRY(with_retries(
        model_.id, options_.retry_delay_ms, [&] { return client_.get(url, 0, {.begin = begin, .write = write}); },
        [] { return std::int64_t{0}; }));
    if (!reply.succeeded()) return refused(reply);
    return parse_hub_listing(text, url);
  }

  // Returns the weight files. Precondition: the small files have been downloaded.
  Result<std::vector<HubFile>> find_weights() const {
    std::map<std::string, std::string> weight_map;
    if (listing_.find(kWeightFile) == nullptr && listing_.find(kWeightIndex) != nullptr)
      weight_map = TRY(read_weight_map(snapshot() / kWeightIndex));
    return weight_files(listing_, weight_map);
  }

  Status fetch(const std::vector<HubFile>& files) {
    std::int64_t total = 0;
    std::int64_t missing = 0;
    for (const HubFile& file : files) {
      total += file.size;
      if (!has_blob(folder_, file)) missing += file.size - incomplete_size(file);
    }
    TRY(make_folder(snapshot()));
    TRY(check_space(missing));
    Progress progress("fetch", total, "B", options_.show_progress && missing > 0);
    std::int64_t done = 0;
    for (const HubFile& file : files) {
      const auto on_progress = [&](std::int64_t bytes) { progress.set(done + bytes, file.name); };
      const BlobRequest request{
          .url = fmt::format("{}/{}/resolve/{}/{}", endpoint(), model_.id, listing_.commit, escaped_path(file.name)),
          .file = file,
          .folder = folder_,
          .retry_delay_ms = options_.retry_delay_ms,
          .on_progress = on_progress};
      TRY(fetch_blob(client_, request, [this](const HttpReply& reply) { return refused(reply); }));
      const fs::path folder = (snapshot() / file.name).parent_path();
      TRY(make_folder(folder));
      const fs::path blobs = (folder_.root() / "blobs").lexically_relative(folder);
      TRY(replace_link(snapshot() / file.name, blobs / file.digest));
      done += file.size;
      progress.set(done);
    }
    return ok_status();
  }

  std::int64_t incomplete_size(const HubFile& file) const {
    std::error_code error;
    const std::uintmax_t size = fs::file_size(folder_.blob(file.digest).string() + ".incomplete", error);
    return error || size > static_cast<std::uintmax_t>(file.size) ? 0 : static_cast<std::int64_t>(size);
  }

  // Checks before the download that the disk has enough free space, because the download may take an hour.
  Status check_space(std::int64_t bytes) const {
    std::error_code error;
    const fs::space_info space = fs::space(folder_.root(), error);
    if (error || static_cast<std::uintmax_t>(bytes) <= space.available) return ok_status();
    constexpr double kMiB = 1024.0 * 1024.0;
    return resource_exhausted(fmt::format("{:.1f} MiB more are needed, and {} has {:.1f} MiB free",
                                          static_cast<double>(bytes) / kMiB, folder_.root().string(),
                                          static_cast<double>(space.available) / kMiB));
  }

  // Returns the error for an unsuccessful reply.
  Status refused(const HttpReply& reply) const {
    if (!reply.broken.empty()) return not_found(fmt::format("{}: {}", endpoint(), reply.broken));
    const std::string* hub_code = reply.header("x-error-code");
    const std::string code = hub_code == nullptr ? "" : *hub_code;
    const bool has_token = !client_.options().token.empty();
    if (code == "GatedRepo" || reply.status == 403) {
      return not_found(
          fmt::format("access is refused (HTTP status {}): accept the model's licence at {}/{} and set "
                      "HF_TOKEN to a token of the account that did",
                      reply.status, endpoint(), model_.id));
    }
    if (reply.status == 401) {
      return not_found(fmt::format("{} has no such model, or it is private or gated (HTTP status 401); {}", endpoint(),
                                   has_token ? "HF_TOKEN gives no access to it" : "set HF_TOKEN for one of those"));
    }
    if (reply.status == 404 && code == "RevisionNotFound")
      return not_found(fmt::format("{} has no revision \"{}\" of {}", endpoint(), model_.revision, model_.id));
    if (reply.status == 404)
      return not_found(fmt::format("{} does not have the model or file (HTTP status 404)", endpoint()));
    return not_found(fmt::format("{} answers with HTTP status {}", endpoint(), reply.status));
  }

  HubFolder folder_;
  HubModel model_;
  PullOptions options_;
  HttpClient client_;
  HubListing listing_;
};

}  // namespace

Result<std::string> pull_model(const HubSettings& settings, const HubModel& model, const PullOptions& options) {
  Pull pull = TRY(Pull::create(settings, model, options));
  return pull.run().with_context(model.id);
}

Result<std::string> resolve_model(const ModelRequest& request, const HubSettings& settings) {
  // An existing path is returned unchanged, even if it cannot be read: the code that opens it reports the reason.
  std::error_code error;
  const std::string& name = request.path_or_id;
  std::optional<HubModel> model = parse_hub_name(name);
  if (fs::exists(name, error) || !model) {
    if (request.revision.empty()) return name;
    return invalid_argument(
        fmt::format("revision: \"{}\" goes with a model of the hub; {} is a path", request.revision, name));
  }
  if (!request.revision.empty()) model->revision = request.revision;
  model->projector = request.projector;
  model->without_projector = request.without_projector;
  Result<std::string> found = find_in_hub_cache(settings, *model, request.content);
  const StatusCode code = found.status().code();
  if (found.ok() || (code != StatusCode::kNotFound && code != StatusCode::kFailedPrecondition)) return found;
  if (request.download)
    return pull_model(settings, *model, {.content = request.content, .show_progress = request.show_progress});
  if (code == StatusCode::kFailedPrecondition) return found;
  return not_found(fmt::format("{} is no path here, and {}", name, found.status().message()));
}

}  // namespace tessera
