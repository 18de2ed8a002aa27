#include "tessera/server/adapters/adapter_routes.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "tessera/server/adapters/adapter_requests.h"

namespace tessera {
namespace {

constexpr double kPollSeconds = 0.01;  // time between two checks whether an adapter's last request has ended

using Shared = std::shared_ptr<const AdapterRouteSources>;

void answer_loaded(const Call& call, const ServedModel& model) {
  call.respond_json(fmt::format("{{\"success\": true, \"loaded_adapters\": {}}}", model.adapters->json()));
}

ApiError error_of(const Status& status) {
  ApiError error = invalid_field("lora_name", status.message());
  if (status.code() == StatusCode::kNotFound) error.http_status = 404;
  return error;
}

// Collects what the engines answer to one task. `T` is Status or a Result.
template <class T>
class Answers {
 public:
  explicit Answers(int engines) : left_(engines) {}
  // Adds an engine's answer. Returns true for the last one. Threads: any.
  bool add(T answer) {
    const std::lock_guard lock(mutex_);
    answers_.push_back(std::move(answer));
    return --left_ == 0;
  }
  // These two functions are called after the last add(). The first returns the first error.
  Status status() const {
    for (const T& answer : answers_)
      if (!answer.ok()) return to_status(answer);
    return ok_status();
  }
  const std::vector<T>& all() const { return answers_; }

 private:
  static Status to_status(const Status& status) { return status; }
  template <class U>
  static Status to_status(const Result<U>& result) {
    return result.status();
  }

  std::mutex mutex_;
  std::vector<T> answers_;
  int left_;
};

// Runs `task` on each engine, and then `done(answers)` on the I/O thread. All engines have the same adapters, because
// each of them runs the same tasks in the same order. So they answer alike.
template <class T, class Task, class Done>
void ask_each_engine(const Shared& shared, Task task, Done done) {
  const auto answers = std::make_shared<Answers<T>>(shared->engines);
  const auto finish = std::make_shared<std::function<void(const Answers<T>&)>>(std::move(done));
  shared->on_each_engine([shared, answers, finish, task = std::move(task)](Engine& engine) {
    if (!answers->add(task(engine))) return;
    // The call ends on the I/O thread, so `finish` is empty when the engines drop their tasks.
    shared->on_io([answers, finish] { std::exchange(*finish, {})(*answers); });
  });
}

// Returns the content for an engine.
std::shared_ptr<const Adapter> content_for(const Engine& engine, const LoadAdapterRequest& request,
                                           const ServedAdapters& adapters) {
  const auto at = std::ranges::find(adapters.devices(), &engine.device());
  return request.contents[static_cast<std::size_t>(at - adapters.devices().begin())];
}

void load(const Shared& shared, Call call, const LoadAdapterRequest& request) {
  ask_each_engine<Status>(
      shared,
      [shared, request](Engine& engine) {
        return engine.adapters().load(request.load, content_for(engine, request, *shared->model.adapters));
      },
      [shared, call = std::move(call), name = request.load.name,
       path = request.contents[0]->path()](const Answers<Status>& answers) {
        if (const Status failed = answers.status(); !failed.ok()) return call.refuse(error_of(failed));
        shared->model.adapters->add(name, path);
        answer_loaded(call, shared->model);
      });
}

using Unloaded = std::vector<std::weak_ptr<const ServedAdapter>>;

// Answers the call once no request of any engine uses the adapter.
void answer_when_ended(const Shared& shared, Call call, Unloaded adapters) {
  std::erase_if(adapters, [](const auto& adapter) { return adapter.expired(); });
  if (adapters.empty()) return answer_loaded(call, shared->model);
  shared->after(kPollSeconds, [shared, call = std::move(call), adapters = std::move(adapters)]() mutable {
    answer_when_ended(shared, std::move(call), std::move(adapters));
  });
}

void unload(const Shared& shared, Call call, const UnloadAdapterRequest& request) {
  using Answer = Result<std::weak_ptr<const ServedAdapter>>;
  ask_each_engine<Answer>(
      shared, [name = request.name](Engine& engine) { return engine.adapters().unload(name); },
      [shared, call = std::move(call), name = request.name](const Answers<Answer>& answers) mutable {
        if (const Status failed = answers.status(); !failed.ok()) return call.refuse(error_of(failed));
        shared->model.adapters->remove(name);
        Unloaded adapters;
        for (const Answer& answer : answers.all()) adapters.push_back(*answer);
        answer_when_ended(shared, std::move(call), std::move(adapters));
      });
}

}  // namespace

void add_adapter_routes(Router& router, AdapterRouteSources sources) {
  const Shared shared = std::make_shared<const AdapterRouteSources>(std::move(sources));
  for (const char* path : {"/v1/load_lora_adapter", "/load_lora_adapter"}) {
    router.add({"POST", path,
                [shared](Call call) {
                  shared->reader().read<LoadAdapterRequest>(
                      std::move(call), read_load_adapter, [shared](Call asked, ApiResult<LoadAdapterRequest> request) {
                        if (!request.ok()) return asked.refuse(request.error());
                        load(shared, std::move(asked), *request);
                      });
                },
                RouteAccess::kAdmin});
  }
  for (const char* path : {"/v1/unload_lora_adapter", "/unload_lora_adapter"}) {
    router.add({"POST", path,
                [shared](Call call) {
                  shared->reader().read<UnloadAdapterRequest>(
                      std::move(call), read_unload_adapter,
                      [shared](Call asked, ApiResult<UnloadAdapterRequest> request) {
                        if (!request.ok()) return asked.refuse(request.error());
                        unload(shared, std::move(asked), *request);
                      });
                },
                RouteAccess::kAdmin});
  }
}

}  // namespace tessera
