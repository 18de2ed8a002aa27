#include "group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <string>

#include "tessera/base/testing/paths.h"
#include "tessera/net/testing/free_port.h"

namespace tessera::testing {

EngineOptions one_rank(const Topology& of) {
  EngineOptions options{
      .registry = faulty_registry(), .model_path = data_path("goldens/llama"), .device = "faulty", .dtype = "float32"};
  if (of.pp_size > 2) options.model_path = data_path("goldens/qwen3.5-text");  // it has four layers
  if (of.engines > 1) options.model_path = data_path("goldens/qwen3-moe");
  options.rank_timeout_s = 20;
  options.context_length = 64;
  options.chunked_prefill_size = 32;
  options.max_running_requests = 4;
  options.page_size = 8;
  options.random_seed = 1;
  options.graphs.piecewise_tokens = {8, 32};
  options.graphs.decode_batches = {1, 2};
  return options;
}

EngineOptions options_of(const Topology& of) {
  EngineOptions options = one_rank(of);
  options.tp_size = of.tp_size;
  options.pp_size = of.pp_size;
  options.replicas = of.engines;
  options.ep_size = of.engines;
  options.dp_attention = of.engines > 1;
  if (of.ahead) options.overlap_schedule = true;
  if (!of.drafts) return options;
  options.max_running_requests = 8;
  options.drafts.source = DraftSource::kEagle;
  options.drafts.model_path = data_path("drafts/llama-eagle3");
  options.drafts.for_all_requests = true;  // this layer's drafts are seldom kept
  return options;
}

Request request(std::int64_t prompt, std::int64_t new_tokens) {
  Request made{.stop = {.max_new_tokens = new_tokens, .ignore_eos = true}};
  for (std::int32_t i = 0; i < prompt; ++i) made.prompt.emplace_back((61 + i * 17 + i * i) % 500);
  return made;
}

Result<std::vector<TokenId>> tokens(Engine& engine) {
  const Request asked = request(11, 6);
  const std::vector<Completion> done = TRY(engine.run({&asked, 1}));
  return done[0].output_ids;
}

const std::vector<TokenId>& right_tokens(const Topology& of) {
  static std::map<std::string, std::vector<TokenId>> made;
  const EngineOptions options = one_rank(of);
  std::vector<TokenId>& right = made[options.model_path];
  if (right.empty()) right = tokens(*Engine::create(options).value()).value();
  return right;
}

Group::Group(const Topology& of, const FaultPlan& of_rank_1, const Change& change) : of_(of) {
  plans = {};
  plans[1] = of_rank_1;
  EngineOptions options = options_of(of);
  if (change) change(options);
  options.nnodes = of.nodes;
  if (of.engines > 1) {
    Result<Engines> engines = start(options);
    started = engines.status();
    if (engines.ok()) engines_ = *std::move(engines);
    return;
  }
  if (of.nodes > 1) {
    options.dist_init_addr = "127.0.0.1:" + std::to_string(free_port());
    follow(options);
  }
  Result<std::unique_ptr<Engine>> engine = Engine::create(options);
  started = engine.status();
  if (engine.ok()) engines_.push_back(*std::move(engine));
}

void Group::follow(const EngineOptions& options) {
  joining_.resize(static_cast<std::size_t>(of_.nodes - 1));
  joined_.resize(joining_.size());
  for (int node = 1; node < of_.nodes; ++node) {
    EngineOptions follows = options;
    follows.node_rank = node;
    follows.device += ":" + std::to_string(node * of_.ranks() / of_.nodes);
    followers_.push_back(std::async(std::launch::async, [this, follows] {
      return follow_engine(follows, [&](std::shared_ptr<NodeGroup> nodes) {
        joining_[static_cast<std::size_t>(follows.node_rank - 1)].set_value(std::move(nodes));
        return ok_status();
      });
    }));
  }
}

Group::~Group() {
  engines_.clear();
  for (int node = 1; node <= static_cast<int>(followers_.size()); ++node) {
    if (!followers_[static_cast<std::size_t>(node - 1)].valid()) continue;
    const Status ended = end_of(node);
    EXPECT_TRUE(ended.ok()) << "node " << node << ": " << ended.to_string();
  }
}

NodeGroup& Group::node(int number) {
  const auto at = static_cast<std::size_t>(number - 1);
  if (joined_[at] == nullptr) joined_[at] = joining_[at].get_future().get();
  return *joined_[at];
}

Status Group::end_of(int node) {
  std::future<Status>& follower = followers_[static_cast<std::size_t>(node - 1)];
  EXPECT_EQ(follower.wait_for(std::chrono::seconds(30)), std::future_status::ready)
      << of_.node(node) << " stays behind";
  return follower.get();
}

std::vector<std::pair<std::int64_t, Status>> Group::dropped() {
  std::vector<std::pair<std::int64_t, Status>> sizes = engine().runner().prefill().report().dropped;
  for (const auto& size : engine().runner().decode().report().dropped) sizes.push_back(size);
  return sizes;
}

std::vector<Status> Group::fail_requests(int rank, const FaultPlan& plan) {
  FakeDevice& device = device_of(rank);
  device.set_plan(plan);
  if (engines_.size() == 1) {
    const Status failed = tokens(engine()).status();
    if (failed.code() == StatusCode::kDeviceLost) return {failed};
    device.set_plan({});
    while (!engine().idle()) EXPECT_TRUE(engine().step().ok());
    return {failed};
  }
  std::vector<Status> reports;
  const Served served(engines_, {{request(11, 6), request(3, 8)}, {request(20, 4), request(5, 9), request(7, 7)}});
  for (std::size_t at = 0; at < engines_.size(); ++at) {
    const bool failed = std::ranges::any_of(served.errors(at), [](const Status& error) { return !error.ok(); });
    reports.push_back(failed ? engines_[at]->health() : ok_status());
    if (!failed) continue;
    EXPECT_THAT(served.errors(at),
                ::testing::Contains(::testing::Property(&Status::message, ::testing::HasSubstr("injected"))))
        << "engine " << at;
  }
  return reports;
}

void Group::expect_right(std::int64_t n) {
  for (const std::unique_ptr<Engine>& engine : engines_) {
    EXPECT_TRUE(engine->health().ok()) << n;
    engine->flush_prefix_cache();
  }
  if (engines_.size() == 1) {
    const Result<std::vector<TokenId>> got = tokens(engine());
    ASSERT_TRUE(got.ok()) << n << ": " << got.status().to_string();
    EXPECT_EQ(*got, right_tokens(of_)) << n;
    return;
  }
  const Served served(engines_, std::vector<std::vector<Request>>(engines_.size(), {request(11, 6)}));
  for (std::size_t at = 0; at < engines_.size(); ++at)
    EXPECT_EQ(served.of(at)[0].output_ids, right_tokens(of_)) << "engine " << at << ", " << n;
}

void Group::expect_ended(std::int64_t n) {
  for (const std::unique_ptr<Engine>& engine : engines_) {
    EXPECT_EQ(engine->health().code(), StatusCode::kDeviceLost) << n;
    EXPECT_THAT(engine->health().message(), ::testing::Not(::testing::HasSubstr("its engine ends"))) << n;
  }
}

}  // namespace tessera::testing
