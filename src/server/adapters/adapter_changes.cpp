#include "tessera/server/adapters/adapter_changes.h"

#include <algorithm>
#include <mutex>

#include "tessera/server/fields/api_fields.h"

namespace tessera {
namespace {

// Turns `status` into an error that names the faulty field of the request: "pinned" if the message begins with
// "pinned:", otherwise "lora_name".
ApiError error_of(const Status& status) {
  const std::string_view field = status.message().starts_with("pinned:") ? "pinned" : "lora_name";
  ApiError error = invalid_field(std::string(field), status.message());
  if (status.code() == StatusCode::kNotFound) error.http_status = 404;
  return error;
}

// Collects what the engines answer to one task. `T` is Status or a Result.
template <class T>
class Answers {
 public:
  explicit Answers(int engines) : left_(engines) {}
  // Adds an engine's answer. Returns true once all engines have answered. Any thread may call it.
  bool add(T answer) {
    const std::lock_guard lock(mutex_);
    answers_.push_back(std::move(answer));
    return --left_ == 0;
  }
  // Call status() and all() after the last add(). status() returns the first error, or ok.
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

// Runs `task` on each engine, and then `done(answers)` on the thread of the engine that finishes last.
template <class T, class Task, class Done>
void ask_each_engine(const EachEngine& engines, Task task, Done done) {
  const auto answers = std::make_shared<Answers<T>>(engines.count);
  const auto finish = std::make_shared<Done>(std::move(done));
  engines.run([answers, finish, task = std::move(task)](Engine& engine) {
    if (answers->add(task(engine))) (*finish)(*answers);
  });
}

// Returns the adapter's copy for this engine. The copy lies in host memory that belongs to the engine's device.
std::shared_ptr<const Adapter> content_for(const Engine& engine, const LoadAdapterRequest& request,
                                           const ServedAdapters& adapters) {
  const auto at = std::ranges::find(adapters.devices(), &engine.device());
  return request.contents[static_cast<std::size_t>(at - adapters.devices().begin())];
}

}  // namespace

bool UnloadedAdapter::in_use() const {
  return std::ranges::any_of(loads_, [](const auto& load) { return !load.expired(); });
}

void load_adapter(const EachEngine& engines, std::shared_ptr<ServedAdapters> adapters, LoadAdapterRequest request,
                  std::function<void(ApiStatus answer)> done) {
  const std::string name = request.load.name;
  const std::string path = request.contents[0]->path();
  ask_each_engine<Status>(
      engines,
      [adapters, request = std::move(request)](Engine& engine) {
        return engine.adapters().load(request.load, content_for(engine, request, *adapters));
      },
      [adapters, name, path, done = std::move(done)](const Answers<Status>& answers) {
        if (const Status failed = answers.status(); !failed.ok()) return done(error_of(failed));
        adapters->add(name, path);
        done(api_ok());
      });
}

void unload_adapter(const EachEngine& engines, std::shared_ptr<ServedAdapters> adapters, std::string name,
                    std::function<void(ApiResult<UnloadedAdapter> answer)> done) {
  using Answer = Result<std::weak_ptr<const ServedAdapter>>;
  ask_each_engine<Answer>(
      engines, [name](Engine& engine) { return engine.adapters().unload(name); },
      [adapters, name, done = std::move(done)](const Answers<Answer>& answers) {
        if (const Status failed = answers.status(); !failed.ok()) return done(error_of(failed));
        adapters->remove(name);
        std::vector<std::weak_ptr<const ServedAdapter>> loads;
        for (const Answer& answer : answers.all()) loads.push_back(*answer);
        done(UnloadedAdapter(std::move(loads)));
      });
}

}  // namespace tessera
