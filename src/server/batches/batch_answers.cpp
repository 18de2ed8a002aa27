#include "tessera/server/batches/batch_answers.h"

#include <fmt/format.h>

#include <fstream>
#include <system_error>
#include <utility>

#include "tessera/base/json.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

// Returns the token counts of the answer in a line of the output file.
Usage usage_of(const Json& line) {
  const Json* response = line.find("response");
  const Json* body = response == nullptr ? nullptr : response->find("body");
  const Json* usage = body == nullptr ? nullptr : body->find("usage");
  return usage == nullptr ? Usage{} : read_usage(*usage);
}

}  // namespace

Result<std::unique_ptr<BatchAnswers>> BatchAnswers::open(fs::path output, fs::path errors, FileStore& store) {
  OpenFile output_file = TRY(OpenFile::open(output));
  OpenFile errors_file = TRY(OpenFile::open(errors));
  std::unique_ptr<BatchAnswers> answers(new BatchAnswers({std::move(output), std::move(output_file)},
                                                         {std::move(errors), std::move(errors_file)}, store));
  answers->completed_ = TRY(answers->load(answers->output_));
  answers->failed_ = TRY(answers->load(answers->errors_));
  return answers;
}

BatchAnswers::~BatchAnswers() { store_.give_back(output_.bytes + errors_.bytes); }

Result<std::int64_t> BatchAnswers::load(Part& part) {
  std::ifstream lines(part.path, std::ios::binary);
  std::int64_t count = 0;
  std::int64_t whole = 0;
  for (std::string line; std::getline(lines, line) && !lines.eof();) {
    const Result<Json> json = Json::parse(line, "the answer");
    const Json* id = json.ok() ? json->find("custom_id") : nullptr;
    if (id == nullptr || !id->is_string()) break;  // the rest of the file is damaged; its requests run again
    done_.insert(id->as_string());
    if (&part == &output_) usage_.add(usage_of(*json));
    whole += std::ssize(line) + 1;
    ++count;
  }
  TRY(part.file.truncate(whole));
  if (const ApiStatus room = store_.take(whole); !room.ok()) return resource_exhausted(room.error().message);
  part.bytes = whole;
  return count;
}

Status BatchAnswers::add(const std::string& custom_id, std::string_view line, const std::optional<Usage>& usage) {
  Part& part = usage ? output_ : errors_;
  if (const ApiStatus room = store_.take(std::ssize(line)); !room.ok()) return resource_exhausted(room.error().message);
  if (Status written = part.file.write(line); !written.ok()) {
    store_.give_back(std::ssize(line));
    (void)part.file.truncate(part.bytes);  // removes the partial line, which the next line would continue
    return written;
  }
  part.bytes += std::ssize(line);
  done_.insert(custom_id);
  ++(usage ? completed_ : failed_);
  if (usage) usage_.add(*usage);
  return ok_status();
}

ApiStatus BatchAnswers::keep(Part& part, StoredFile file, std::string& id) {
  if (part.bytes == 0) {
    std::error_code ignored;
    fs::remove(part.path, ignored);
    return api_ok();
  }
  TRY(part.file.sync());
  file.bytes = std::exchange(part.bytes, 0);
  StoredFile kept = TRY(store_.adopt(std::move(file), part.path));
  id = std::move(kept.id);
  return api_ok();
}

ApiStatus BatchAnswers::keep(const StoredFile& like, std::string_view name, std::string& output_id,
                             std::string& error_id) {
  StoredFile output = like;
  output.filename = fmt::format("{}_output.jsonl", name);
  TRY(keep(output_, std::move(output), output_id));
  StoredFile errors = like;
  errors.filename = fmt::format("{}_error.jsonl", name);
  return keep(errors_, std::move(errors), error_id);
}

}  // namespace tessera
