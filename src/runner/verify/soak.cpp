#include "tessera/runner/verify/soak.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <optional>
#include <utility>

#include "tessera/base/progress.h"
#include "tessera/ops/moe/moe_route.h"
#include "tessera/runner/ranks/rank_order.h"
#include "tessera/runner/verify/soak_difference.h"
#include "tessera/runner/verify/soak_images.h"
#include "tessera/runner/verify/soak_world.h"

namespace tessera {
namespace {

constexpr std::size_t kMostKept = 8;  // maximum number of kept failures and of kept ties

std::int64_t resident_bytes() {
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr) return 0;
  long long pages = 0;
  const bool read = std::fscanf(file, "%*d %lld", &pages) == 1;
  std::fclose(file);
  return read ? pages * sysconf(_SC_PAGESIZE) : 0;
}

// All results of a forward on the host.
struct Outcome {
  std::vector<float> logits;
  std::vector<float> hidden;
  std::vector<TokenId> sampled;
  std::vector<float> logprobs;
  std::vector<TokenId> top_ids;
  std::vector<float> top_logprobs;
};

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

// Returns the name of the first kind of result in which two outcomes differ, such as "hidden states". Returns an empty
// string if the outcomes are equal.
std::string difference(const Outcome& a, const Outcome& b) {
  if (!same_bits(a.hidden, b.hidden)) return "hidden states";
  if (!same_bits(a.logits, b.logits)) return "logits";
  if (!same_bits(a.sampled, b.sampled)) return "sampled ids";
  if (!same_bits(a.logprobs, b.logprobs)) return "log-probabilities";
  if (!same_bits(a.top_ids, b.top_ids) || !same_bits(a.top_logprobs, b.top_logprobs)) return "top log-probabilities";
  return {};
}

class Soak {
 public:
  Soak(ModelRunner& runner, const SoakOptions& options)
      : runner_(runner),
        options_(options),
        world_(runner.options(), runner.model().graphs.body.cache_groups, runner.vocab_size(),
               runner.embedding_row_values(), options.seed),
        routes_(std::ranges::any_of(runner.model().graphs.body.nodes,
                                    [](const ir::Node& node) { return node.op == kMoeRoute.name; })) {}

  Result<SoakReport> run() {
    const auto start = std::chrono::steady_clock::now();
    TRY(runner_.reserve_embeddings(runner_.options().max_tokens));
    use_images();
    Progress progress("Soaking", options_.batches, "batches", options_.show_progress);
    TRY(poison_all());
    for (std::int64_t n = 0; n < options_.batches; ++n) {
      if (n == options_.batches / 2) note_memory(report_.resident_early, report_.available_early);
      TRY(compare_next().with_context(fmt::format("batch {}", n)));
      ++report_.batches;
      progress.advance(1);
    }
    note_memory(report_.resident_end, report_.available_end);
    judge_ties();
    report_.cancelled = world_.cancelled();
    if (images_) report_.images = images_->report();
    report_.finished = world_.finished();
    report_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return std::move(report_);
  }

 private:
  void note_memory(std::int64_t& resident, std::int64_t& available) const {
    resident = resident_bytes();
    available = runner_.device().available_bytes();
  }

  // Fills all pages except page 0 with NaN before the first batch. If a kernel reads a page that belongs to no
  // sequence, for example through another group's page table, it then computes NaNs.
  Status poison_all() {
    RunnerParts& parts = runner_.parts();
    for (std::size_t g = 0; g < parts.model.num_cache_groups(); ++g)
      TRY(parts.memory().kv.fill(g, PageId(1), parts.model.options.num_pages[g] - 1, IsolatedMemory::kPoison,
                                 parts.stream()));
    return ok_status();
  }
  Status poison_given_back() {
    RunnerParts& parts = runner_.parts();
    for (const SoakWorld::GroupPage& page : world_.given_back())
      TRY(parts.memory().kv.fill(page.group, page.page, 1, IsolatedMemory::kPoison, parts.stream()));
    return ok_status();
  }

  // Gives half of the embedding rows to images. If there are several ranks, uses no images, because soak() runs the
  // tower of rank 0 without an order to the other ranks.
  void use_images() {
    if (runner_.vision() == nullptr || !runner_.options().runs_alone()) return;
    const std::int64_t others = runner_.embedding_rows() / 2;
    images_.emplace(runner_, others, runner_.embedding_rows() - others, options_.tolerance);
    if (!images_->gallery().empty()) world_.use_images(images_->gallery(), others);
  }

  Status compare_images() {
    if (!images_) return ok_status();
    const std::string differs = TRY(images_->next(world_));
    if (!differs.empty()) fail(differs);
    return ok_status();
  }

  Status compare_next() {
    TRY(compare_images().with_context("images"));
    const ForwardBatch& batch = world_.next();
    TRY(poison_given_back());
    report_.tokens += batch.num_tokens();
    draw_wishes(batch);
    // The graph runs after the eager forward, because later batches should read the graph's keys and values.
    ForwardInputs first = inputs_of(batch);
    first.force_eager = true;
    TRY(compute(first, unpadded_).with_context("eager"));
    ForwardInputs inputs = inputs_of(world_.again());
    inputs.replay_graphs = false;
    TRY(compute(inputs, in_bucket_).with_context("in its bucket"));
    inputs.replay_graphs = true;
    const Decision decision = TRY(compute(inputs, graph_).with_context("dispatched"));
    report_.forwards.add(decision, batch.num_tokens(), batch.is_decode_with_drafts());

    const std::string differs = difference(graph_, in_bucket_);
    if (!differs.empty()) fail(batch, decision, differs + " differ from those of the same operators without graph");
    double unpadded = relative_difference(graph_.logits, unpadded_.logits, runner_.vocab_size(), logit_scale_);
    unpadded =
        std::max(unpadded, relative_difference(graph_.hidden, unpadded_.hidden, runner_.hidden_size(), hidden_scale_));
    if (unpadded > options_.tolerance && routes_ && unpadded <= kGreatestTie) {
      ++report_.num_ties;
      report_.greatest_tie = std::max(report_.greatest_tie, unpadded);
      keep(report_.ties, batch, decision, fmt::format("differs from the unpadded forward by {:.2g}", unpadded));
      return ok_status();
    }
    report_.greatest_difference = std::max(report_.greatest_difference, unpadded);
    if (!(unpadded <= options_.tolerance))
      fail(batch, decision, fmt::format("differs from the unpadded forward by {:.2g}", unpadded));
    return ok_status();
  }

  // Chooses the batch's sampling parameters at random. Also chooses at random whether the forward returns
  // log-probabilities, edits logits, and returns hidden states.
  void draw_wishes(const ForwardBatch& batch) {
    const std::int64_t rows = batch.num_wanted_rows();
    const std::int64_t sampled = std::min(rows, runner_.options().max_requests);
    sampling_.clear();
    for (std::int64_t i = 0; i < sampled; ++i) {
      sampling_.push_back(
          {.temperature = world_.chance(0.5) ? 0.0F : 0.8F,
           .top_k = static_cast<std::int32_t>(world_.draw(3) * 10),
           .top_p = 0.9F,
           .seed = world_.draw(1 << 20),
           .position = batch.positions[static_cast<std::size_t>(batch.wanted_rows[static_cast<std::size_t>(i)])]});
    }
    targets_.clear();
    top_ = 0;
    if (world_.chance(0.3)) {
      for (std::int64_t i = 0; i < rows; ++i)
        targets_.emplace_back(static_cast<std::int32_t>(world_.draw(runner_.vocab_size())));
      top_ = static_cast<int>(world_.draw(6));
    }
    edits_ = {};
    if (sampled > 0 && world_.chance(0.2)) {
      edits_.starts = {0};
      for (std::int64_t i = 0; i < sampled; ++i) {
        edits_.ids.emplace_back(static_cast<std::int32_t>(world_.draw(runner_.vocab_size())));
        edits_.penalties.push_back(1.2F);
        edits_.offsets.push_back(-0.5F);
        edits_.starts.push_back(static_cast<std::int32_t>(edits_.ids.size()));
      }
    }
    wants_hidden_ = world_.chance(0.2);
  }

  ForwardInputs inputs_of(const ForwardBatch& batch) const {
    return {.batch = batch,
            .rope_positions = world_.rope_positions(),
            .sampling = sampling_,
            .edits = edits_.empty() ? nullptr : &edits_,
            .logprob_targets = targets_,
            .top_logprobs = top_};
  }

  Result<Decision> compute(ForwardInputs inputs, Outcome& outcome) {
    const auto size = [](std::int64_t rows, std::int64_t cols) { return static_cast<std::size_t>(rows * cols); };
    const bool has_head = runner_.model().graphs.has_head;
    outcome.logits.assign(has_head ? size(inputs.batch.num_wanted_rows(), runner_.vocab_size()) : 0, NAN);
    outcome.hidden.assign(has_head && wants_hidden_ ? size(inputs.batch.num_tokens(), runner_.hidden_size()) : 0, NAN);
    inputs.logits = outcome.logits;
    inputs.hidden_states = outcome.hidden;
    const ForwardOutputs outputs = TRY(runner_.forward(inputs));
    outcome.sampled.assign(outputs.step.sampled.begin(), outputs.step.sampled.end());
    outcome.logprobs.assign(outputs.step.logprobs.begin(), outputs.step.logprobs.end());
    outcome.top_ids.assign(outputs.step.top_ids.begin(), outputs.step.top_ids.end());
    outcome.top_logprobs.assign(outputs.step.top_logprobs.begin(), outputs.step.top_logprobs.end());
    return outputs.decision;
  }

  void fail(const ForwardBatch& batch, const Decision& decision, const std::string& what) {
    ++report_.num_failures;
    keep(report_.failures, batch, decision, what);
  }
  void fail(const std::string& what) {
    ++report_.num_failures;
    keep(report_.failures, what);
  }
  void keep(std::vector<std::string>& list, const ForwardBatch& batch, const Decision& decision,
            const std::string& what) const {
    keep(list, fmt::format("{} tokens of {} requests on {} {}: {}", batch.num_tokens(), batch.num_requests(),
                           runner_kind_name(decision.runner), decision.size, what));
  }
  void keep(std::vector<std::string>& list, const std::string& what) const {
    if (list.size() < kMostKept) list.push_back(fmt::format("batch {}: {}", report_.batches, what));
  }

  // Counts ties as failures if there are too many of them to be coincidences.
  void judge_ties() {
    const auto most =
        std::max<std::int64_t>(1, static_cast<std::int64_t>(kMostTies * static_cast<double>(report_.batches)));
    if (report_.num_ties <= most) return;
    report_.num_failures += std::exchange(report_.num_ties, 0);
    report_.greatest_difference = std::max(report_.greatest_difference, std::exchange(report_.greatest_tie, 0.0));
    for (std::string& tie : report_.ties)
      if (report_.failures.size() < kMostKept) report_.failures.push_back(std::move(tie));
    report_.ties.clear();
  }

  ModelRunner& runner_;
  SoakOptions options_;
  std::optional<SoakImages> images_;  // set if the model has a tower; must outlive world_, which refers to it
  SoakWorld world_;
  bool routes_;  // whether the model routes rows to experts
  SoakReport report_;
  double logit_scale_ = 0;
  double hidden_scale_ = 0;
  std::vector<SampleRow> sampling_;
  std::vector<TokenId> targets_;
  LogitEdits edits_;
  int top_ = 0;
  bool wants_hidden_ = false;
  Outcome graph_;
  Outcome in_bucket_;
  Outcome unpadded_;
};

}  // namespace

Result<SoakReport> soak(ModelRunner& runner, const SoakOptions& options) {
  const bool leads = runner.options().ranks != nullptr;
  if (leads && !runner.costs().empty())
    return failed_precondition(
        "a soak of ranks needs a runner without measured costs, because each rank chooses its own dispatch");
  // Captures all pending sizes first. Otherwise each rank would capture the sizes of its own batches, and a size whose
  // capture failed would be dropped on one rank only.
  if (leads) TRY(runner.capture_rest());
  SoakReport report;
  const RankOrder order{
      .kind = RankOrderKind::kSoak, .size = options.batches, .seed = options.seed, .tolerance = options.tolerance};
  TRY(runner.together(order, [&]() -> Status {
    report = TRY(Soak(runner, options).run());
    return ok_status();
  }));
  return report;
}

}  // namespace tessera
