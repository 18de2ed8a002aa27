// Runs a whole server with the bundled model on a thread of its own, and reads the server's answers. For tests only.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "tessera/base/json.h"
#include "tessera/device/testing/environment.h"
#include "tessera/server/http/http_test_util.h"
#include "tessera/server/server.h"

namespace tessera::testing {

inline std::unique_ptr<Engine> make_engine(EngineOptions options = {}) {
  options.model_path = source_path("models/demo");
  options.device = test_device_name();
  options.dtype = "float32";
  options.context_length = 512;
  options.max_running_requests = 8;
  options.random_seed = 1;
  options.graphs.piecewise_tokens = {16, 64};
  options.graphs.decode_batches = {1, 4};
  Result<std::unique_ptr<Engine>> engine = Engine::create(options);
  EXPECT_TRUE(engine.ok()) << engine.status().to_string();
  return *std::move(engine);
}

// A server that runs on its own thread until the test ends.
class Running {
 public:
  explicit Running(Engine& engine, ServerOptions options = {})
      : Running(std::vector<Engine*>{&engine}, std::move(options)) {}
  explicit Running(std::vector<Engine*> engines, ServerOptions options = {}) {
    options.http.port = 0;
    options.served_model_name = "demo";
    Result<std::unique_ptr<Server>> made = Server::create(std::move(options), std::move(engines));
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    server = *std::move(made);
    port = static_cast<std::uint16_t>(std::stoi(server->address().substr(server->address().rfind(':') + 1)));
    thread_ = std::thread([this] { result = server->run(); });
  }
  ~Running() {
    server->stop(0);
    if (thread_.joinable()) thread_.join();
  }
  void join() { thread_.join(); }

  Reply ask(std::string_view request) const { return Client(port).ask(request); }
  Json json(std::string_view request, int status = 200) const {
    const Reply reply = ask(request);
    EXPECT_EQ(reply.status, status) << request << "\n" << reply.body;
    Result<Json> json = Json::parse(reply.body, "answer");
    EXPECT_TRUE(json.ok()) << reply.body;
    return json.ok() ? *std::move(json) : Json();
  }

  std::unique_ptr<Server> server;
  std::uint16_t port = 0;
  Status result;

 private:
  std::thread thread_;
};

class ServerTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { engine_ = make_engine().release(); }
  static void TearDownTestSuite() {
    delete engine_;
    engine_ = nullptr;
  }
  static Engine& engine() { return *engine_; }

 private:
  static inline Engine* engine_ = nullptr;
};

inline std::string completion(const std::string& members) {
  return post("/v1/completions", R"({"model": "demo", "temperature": 0, )" + members + "}");
}
inline const Json& choice(const Json& answer) { return answer.find("choices")->as_array()[0]; }
inline std::string text_of(const Json& answer) { return choice(answer).find("text")->as_string(); }
inline std::string error_code(const Json& answer) {
  const Json* code = answer.find("error")->find("code");
  return code->is_string() ? code->as_string() : "";
}

// Returns the text of all completion chunks. The stream must be complete.
inline std::string streamed_text(const std::string& body) {
  EXPECT_TRUE(body.ends_with("data: [DONE]\n\n")) << body;
  std::string text;
  for (std::size_t at = 0; body.compare(at, 12, "data: [DONE]") != 0;) {
    const std::size_t end = body.find("\n\n", at);
    Result<Json> chunk = Json::parse(std::string_view(body).substr(at + 6, end - at - 6), "chunk");
    EXPECT_TRUE(chunk.ok()) << body;
    if (!chunk.ok()) return text;
    if (!chunk->find("choices")->as_array().empty()) text += text_of(*chunk);
    at = end + 2;
  }
  return text;
}

inline std::int64_t stat(const Running& running, const char* name) {
  return running.json(get("/get_server_info")).find("stats")->find(name)->as_int();
}

}  // namespace tessera::testing
