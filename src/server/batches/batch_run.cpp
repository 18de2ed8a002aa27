#include "tessera/server/batches/batch_run.h"

namespace tessera {

bool BatchRun::peek() {
  while (waiting_.empty()) {
    std::optional<BatchInput::Line> line = input_.next();
    if (!line) return false;
    Json id;
    Result<BatchRequest> request = read_whole_batch_line(line->text, id);
    // Skips requests that already have an answer. Also skips lines that are not requests, but there should be none,
    // because the whole file was checked before.
    if (!request.ok() || answers_->has(id.as_string())) continue;
    waiting_.push_back({.custom_id = id.as_string(), .request = *std::move(request)});
  }
  return true;
}

std::optional<BatchRun::Next> BatchRun::next() {
  if (!peek()) return std::nullopt;
  Next request = std::move(waiting_.front());
  waiting_.pop_front();
  return request;
}

Status BatchRun::end(const std::string& custom_id, std::string_view line, const std::optional<Usage>& usage) {
  --running_;
  return answers_->add(custom_id, line, usage);
}

void BatchRun::end_without_answer(Next request) {
  --running_;
  put_back(std::move(request));
}

Status BatchRun::refuse_rest(std::string_view code, std::string_view message) {
  while (const std::optional<Next> request = next())
    TRY(answers_->add(request->custom_id, batch_error(request->custom_id, code, message), /*usage=*/{}));
  return ok_status();
}

}  // namespace tessera
