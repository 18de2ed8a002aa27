#include "tessera/server/health_job.h"

namespace tessera {
namespace {

class EmptyAnswer : public Answer {
 public:
  void on_event(std::size_t, const RequestEvent&, Completion*, std::string&) override {}
  std::string body() override { return ""; }
};

}  // namespace

ApiResult<ApiJob> prepare_health(const ServedModel& model, std::string_view) {
  ApiJob job{.id = make_id("health-"), .answer = std::make_unique<EmptyAnswer>()};
  Request request{.prompt = {TokenId(0)}, .wants_text = false};
  request.stop.max_new_tokens = 1;
  if (!model.generates()) request.pooling = Pooling::kLast;
  request.stop.ignore_eos = true;
  job.requests.push_back(std::move(request));
  return job;
}

}  // namespace tessera
