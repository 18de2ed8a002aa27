#include "tessera/server/batches/file_routes.h"

#include <fmt/format.h>

#include <fstream>
#include <optional>
#include <utility>
#include <vector>

#include "tessera/base/parsed_number.h"
#include "tessera/server/api_job.h"
#include "tessera/server/batches/new_batch.h"
#include "tessera/server/fields/api_fields.h"
#include "tessera/server/fields/json_writer.h"
#include "tessera/server/fields/query.h"
#include "tessera/server/fields/query_fields.h"
#include "tessera/server/http/bodies/multipart.h"
#include "tessera/server/refusals.h"
#include "tessera/text/unicode.h"

namespace tessera {
namespace {

constexpr std::string_view kFileRoute = "/v1/files/";
constexpr std::string_view kBatchPurpose = "batch";
constexpr std::size_t kMostFileName = 255;
constexpr std::size_t kContentPart = std::size_t{256} << 10;  // bytes of a file's content that are sent at once
constexpr std::int64_t kMostFileListed = 10'000;
constexpr const char* kFileType = "application/octet-stream";

std::string file_name(const std::string& sent) {
  std::string_view kept = std::string_view(sent).substr(0, kMostFileName);
  if (kept.size() < sent.size()) kept = kept.substr(0, complete_utf8_prefix(kept));
  return replace_invalid_utf8(kept);
}

ApiResult<std::int64_t> read_age(std::string_view text) {
  const std::optional<std::int64_t> seconds = parsed_number<std::int64_t>(text);
  if (!seconds || *seconds < kLeastFileAge || *seconds > kMostFileAge)
    return invalid_field("expires_after[seconds]",
                         fmt::format("\"expires_after[seconds]\" is \"{}\"; accepted: {} to {}",
                                     clip_text(std::string(text)), kLeastFileAge, kMostFileAge));
  return *seconds;
}

ApiResult<std::string> put_file(FileStore& store, const std::string& owner, std::string_view content_type,
                                std::string_view body) {
  Result<std::vector<FormPart>> parts = read_form(content_type, body);
  if (!parts.ok()) return invalid_field("", parts.status().message());
  StoredFile file{.owner = owner, .filename = "", .purpose = ""};
  std::optional<std::string_view> content;
  std::int64_t age = kMostFileAge;
  for (const FormPart& part : *parts) {
    if (part.name == "file") {
      content = part.content;
      file.filename = file_name(part.filename);
    } else if (part.name == "purpose") {
      file.purpose = std::string(part.content);
    } else if (part.name == "expires_after[seconds]") {
      age = TRY(read_age(part.content));
    } else if (part.name == "expires_after[anchor]") {
      if (part.content != "created_at")
        return invalid_field(part.name, "\"expires_after[anchor]\" is not known; accepted: \"created_at\"");
    } else {
      return invalid_field(clip_text(part.name),
                           fmt::format("the form's field \"{}\" is not known; accepted: \"file\", \"purpose\", "
                                       "\"expires_after[anchor]\" and \"expires_after[seconds]\"",
                                       clip_text(part.name)));
    }
  }
  if (!content) return invalid_field("file", "the form has no field \"file\"");
  if (file.purpose != kBatchPurpose)
    return invalid_field(
        "purpose", fmt::format("\"purpose\" is \"{}\"; accepted: \"{}\"", clip_text(file.purpose), kBatchPurpose));
  file.expires_at = unix_time() + age;
  StoredFile kept = TRY(store.put(std::move(file), *content));
  return kept.to_json().dump();
}

}  // namespace

void FileRoutes::add_to(Router& router) {
  const auto add = [&](const char* method, const char* path, void (FileRoutes::*handle)(const Call&) const) {
    router.add({method, path, [this, handle](const Call& call) {
                  if (store_ == nullptr) return call.refuse(no_file_folder());
                  (this->*handle)(call);
                }});
  };
  router.add(
      {"POST", "/v1/files", [this](Call call) { upload(std::move(call)); }, RouteAccess::kClient, BodyType::kForm});
  add("GET", "/v1/files", &FileRoutes::list);
  add("GET", "/v1/files/*", &FileRoutes::get);
  add("DELETE", "/v1/files/*", &FileRoutes::erase);
}

void FileRoutes::upload(Call call) const {
  if (store_ == nullptr) return call.refuse(no_file_folder());
  auto body = std::make_shared<std::string>(call.take_body());
  auto make = [store = store_, owner = work_.owner(call), type = std::string(call.request().header("Content-Type")),
               body = std::move(body)] { return put_file(*store, owner, type, *body); };
  work_.answer(call, TextWork::kLarge, std::move(make));
}

void FileRoutes::list(const Call& call) const {
  work_.answer(call, TextWork::kSmall, [this, owner = work_.owner(call), query = call.request().query] {
    const std::optional<std::string> purpose = query_value(query, "purpose");
    std::vector<Json> items;
    for (const StoredFile& file : store_->list(owner)) {
      if (!purpose || file.purpose == *purpose) items.push_back(file.to_json());
    }
    return list_body(query, items, kMostFileListed, kMostFileListed);
  });
}

void FileRoutes::get(const Call& call) const {
  PathTarget target = target_of(call.request().path, kFileRoute);
  if (!target.action.empty() && target.action != "/content") return call.refuse(nothing_at(call.request().path));
  ApiResult<StoredFile> file = store_->find(target.id, work_.owner(call));
  if (!file.ok()) return call.refuse(file.error());
  if (target.action.empty()) return call.respond_json(file->to_json().dump());
  send_content(call, target.id);
}

void FileRoutes::erase(const Call& call) const {
  PathTarget target = target_of(call.request().path, kFileRoute);
  if (!target.action.empty()) return call.refuse(nothing_at(call.request().path));
  work_.answer(call, TextWork::kSmall,
               [this, owner = work_.owner(call), id = std::move(target.id)]() -> ApiResult<std::string> {
                 TRY(store_->erase(id, owner));
                 JsonWriter json;
                 json.object().key("id").value(id).key("object").value("file").key("deleted").value(true);
                 return json.end_object().take();
               });
}

namespace {

// The state of a response that sends a file's content in parts.
struct Content {
  Content(RouteWork its_work, Call its_call, const std::filesystem::path& path)
      : work(its_work), call(std::move(its_call)), file(path, std::ios::binary) {}
  RouteWork work;
  Call call;
  std::ifstream file;
  bool begun = false;
};

void read_part(const std::shared_ptr<Content>& content);

// Sends a part of a file. If the whole file fits into one part, the response has a Content-Length.
void send_part(const std::shared_ptr<Content>& content, std::string part, bool last) {
  const Call& call = content->call;
  if (std::exchange(content->begun, true)) {
    call.write(part);
  } else if (last) {
    return call.respond({.content_type = kFileType, .body = std::move(part), .headers = {}});
  } else {
    call.start_stream(std::move(part), kFileType);
  }
  if (last) return call.finish("the file was sent");
  call.on_sent([content] { read_part(content); });
}

void read_part(const std::shared_ptr<Content>& content) {
  content->work.pools.post(TextWork::kAnswers, content->call, [content] {
    std::string part(kContentPart, '\0');
    content->file.read(part.data(), static_cast<std::streamsize>(part.size()));
    part.resize(static_cast<std::size_t>(content->file.gcount()));
    const bool failed = content->file.bad();
    const bool last = content->file.eof() || content->file.peek() == std::char_traits<char>::eof();
    content->work.http.post([content, part = std::move(part), failed, last]() mutable {
      if (failed) return content->call.fail(api_error(internal_error("the file cannot be read")));
      send_part(content, std::move(part), last);
    });
  });
}

}  // namespace

void FileRoutes::send_content(const Call& call, const std::string& id) const {
  read_part(std::make_shared<Content>(work_, call, store_->path_of(id)));
}

}  // namespace tessera
