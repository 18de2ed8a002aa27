// Shows where the time of one forward goes. Times every part of the forward's replay (a piece, or an operator between
// two pieces), and every operator of an eager run of the same size. The result is a timeline, a table of the sums by
// operator, and a table of the slowest calls.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "tessera/base/write_file.h"
#include "tessera/cli/bench/bench.h"
#include "tessera/cli/bench/bench_batches.h"
#include "tessera/cli/bench/chrome_trace.h"
#include "tessera/cli/output.h"
#include "tessera/cli/table.h"

namespace tessera::cli {
namespace {

constexpr int kProfileWarmUps = 3;
constexpr std::size_t kShown = 10;  // operators in the table

// A part or an operator that is enqueued and timed separately.
struct Call {
  std::string name;
  std::function<Status()> enqueue;
  Json args = Json::object();
  std::vector<double> begin_ms = {};  // [runs]: device time since the run's first call began
  std::vector<double> end_ms = {};

  double median_ms() const {
    std::vector<double> took(begin_ms.size());
    std::transform(end_ms.begin(), end_ms.end(), begin_ms.begin(), took.begin(), std::minus<>());
    return median(std::move(took));
  }
};

// Runs all calls back to back, `repeat` times after some warm-ups. Stores the times in `calls`.
Status time_calls(ModelRunner& runner, std::int64_t repeat, std::vector<Call>& calls) {
  std::vector<std::unique_ptr<Event>> passed(calls.size() + 1);
  for (std::unique_ptr<Event>& event : passed) event = TRY(runner.device().create_event(EventKind::kTime));
  for (std::int64_t run = -kProfileWarmUps; run < repeat; ++run) {
    TRY(runner.stream().record(*passed[0]));
    for (std::size_t i = 0; i < calls.size(); ++i) {
      TRY(calls[i].enqueue());
      TRY(runner.stream().record(*passed[i + 1]));
    }
    TRY(runner.stream().synchronize());
    for (std::size_t i = 0; run >= 0 && i < calls.size(); ++i) {
      calls[i].begin_ms.push_back(i == 0 ? 0 : calls[i - 1].end_ms.back());
      calls[i].end_ms.push_back(TRY(passed[i + 1]->milliseconds_since(*passed[0])));
    }
  }
  return ok_status();
}

std::string shape_text(const TensorView& view) {
  return fmt::format("{}[{}]", ir::dtype_name(view.dtype),
                     fmt::join(view.dims.begin(), view.dims.begin() + view.rank, ", "));
}

// A runner that takes part in a forward, and the size at which it runs.
struct Stage {
  const GraphRunner& runner;
  std::int64_t size;
};

void add_parts(const Stage& stage, std::vector<Call>& calls) {
  const ir::Bucket bucket = stage.runner.bucket(stage.size);
  const Executable& executable = stage.runner.executable();
  const std::span<const CompiledPart> parts = executable.parts(bucket);
  for (std::size_t p = 0; p < parts.size(); ++p) {
    const CompiledPart& part = parts[p];
    if (part.program->instructions.empty()) continue;
    Call call{.name = fmt::format("{} {}", stage.runner.name(), part.name),
              .enqueue = [&executable, bucket, p] { return executable.replay_part(bucket, p); }};
    call.args.set("runner", stage.runner.name()).set("size", stage.size).set("piece", part.name);
    call.args.set("graph", part.recordable() && executable.captured(bucket));
    call.args.set("operators", std::ssize(part.program->instructions));
    calls.push_back(std::move(call));
  }
}

// Describes a call in `args`. "result" names the mutated operands and the results. "bytes" is the size of all operands
// and results except states.
Status describe(const Stage& stage, std::size_t part, const ir::Node& call, Json& args) {
  const Executable& executable = stage.runner.executable();
  const CompiledPart& of = executable.parts(stage.runner.bucket(stage.size))[part];
  std::vector<std::string> made, read, written;
  std::int64_t bytes = 0;
  const auto look_at = [&](ir::ValueId id, std::vector<std::string>& shapes) -> Status {
    const TensorView view = TRY(executable.value(stage.runner.bucket(stage.size), part, id));
    if (of.program->value(id).kind != ir::ValueKind::kState) bytes += view.bytes();
    shapes.push_back(shape_text(view));
    return ok_status();
  };
  for (std::size_t i = 0; i < call.operands.size(); ++i) {
    TRY(look_at(call.operands[i], read));
    if (call.mutates[i]) made.push_back("%" + of.value_names[call.operands[i].index()]);
  }
  for (const ir::ValueId id : call.results) {
    TRY(look_at(id, written));
    made.push_back("%" + of.value_names[id.index()]);
  }
  args.set("operator", call.op).set("result", fmt::format("{}", fmt::join(made, ", ")));
  args.set("shapes", fmt::format("{} -> {}", fmt::join(read, ", "), fmt::join(written, ", "))).set("bytes", bytes);
  return ok_status();
}

Status add_operators(const Stage& stage, std::vector<Call>& calls) {
  const ir::Bucket bucket = stage.runner.bucket(stage.size);
  const Executable& executable = stage.runner.executable();
  const std::span<const CompiledPart> parts = executable.parts(bucket);
  for (std::size_t p = 0; p < parts.size(); ++p) {
    std::string joined;  // names of operators that run in the kernel of a later operator
    for (std::size_t i = 0; i < parts[p].program->instructions.size(); ++i) {
      const ir::Node& node = parts[p].program->instructions[i].call;
      if (TRY(executable.runs_later(bucket, p, i))) {
        joined += node.op + " + ";
        continue;
      }
      Call call{.name = std::exchange(joined, "") + node.op,
                .enqueue = [&executable, bucket, p, i] { return executable.run_instruction(bucket, p, i); }};
      call.args.set("runner", stage.runner.name()).set("size", stage.size).set("piece", parts[p].name);
      TRY(describe(stage, p, node, call.args));
      calls.push_back(std::move(call));
    }
  }
  return ok_status();
}

// Returns the index of the run whose duration is the median.
std::size_t typical_run(const std::vector<Call>& calls) {
  std::vector<std::size_t> runs(calls.back().end_ms.size());
  std::iota(runs.begin(), runs.end(), 0);
  const auto middle = runs.begin() + std::ssize(runs) / 2;
  std::nth_element(runs.begin(), middle, runs.end(),
                   [&](std::size_t a, std::size_t b) { return calls.back().end_ms[a] < calls.back().end_ms[b]; });
  return *middle;
}

// Adds a track with all calls, and one span around them. Returns the length of this span in ms.
double add_track(const std::string& name, const std::string& category, std::int64_t process, std::int64_t track,
                 const std::vector<Call>& calls, ChromeTrace& trace) {
  const std::size_t run = typical_run(calls);
  trace.name_track(process, track, category);
  trace.add({.name = name,
             .category = category,
             .process = process,
             .track = track,
             .begin_ms = 0,
             .end_ms = calls.back().end_ms[run]});
  for (const Call& call : calls) {
    Json args = call.args;
    args.set("median_ms", call.median_ms());
    trace.add({.name = call.name,
               .category = category,
               .process = process,
               .track = track,
               .begin_ms = call.begin_ms[run],
               .end_ms = call.end_ms[run],
               .args = std::move(args)});
  }
  return calls.back().end_ms[run];
}

// The data of one profiled forward. The tables are made from it.
struct Profiled {
  std::string forward;
  double replay_ms = 0;
  double eager_ms = 0;
  std::vector<Call> operators;
};

Result<Profiled> profile(ModelRunner& runner, const ForwardBatch& batch, const BenchOptions& options,
                         std::int64_t process, ChromeTrace& trace) {
  const std::vector<SampleRow> greedy(batch.wanted_rows.size());
  // This forward binds the parts and stages their inputs. Running the parts later does not change these inputs.
  const Decision decision = TRY(runner.forward({.batch = batch, .sampling = greedy})).decision;
  std::vector<Stage> stages;
  if (decision.runner == RunnerKind::kDecode) {
    stages.push_back({runner_of(runner, RunnerRole::kDecode, decision), decision.size});
  } else {
    const GraphRunner& head = runner_of(runner, RunnerRole::kHead, decision);
    stages.push_back({runner_of(runner, RunnerRole::kPrefill, decision), decision.size});
    stages.push_back({head, head.padded_size(batch.num_wanted_rows())});
  }
  std::vector<Call> parts;
  Profiled profiled;
  for (const Stage& stage : stages) {
    add_parts(stage, parts);
    TRY(add_operators(stage, profiled.operators));
  }
  TRY(time_calls(runner, options.repeat, parts));
  TRY(time_calls(runner, options.repeat, profiled.operators));

  profiled.forward = fmt::format("{} {}", runner_kind_name(decision.runner), decision.size);
  const std::string title =
      fmt::format("{}: {} tokens, {}", profiled.forward, batch.num_tokens(), plural(batch.num_requests(), "request"));
  trace.name_process(process, title);
  profiled.replay_ms = add_track(profiled.forward, "replay", process, 1, parts, trace);
  profiled.eager_ms = add_track(profiled.forward, "eager operators", process, 2, profiled.operators, trace);
  return profiled;
}

// An operator's times, summed over its calls in a forward.
struct OperatorSum {
  std::string forward;
  std::string name;
  std::int64_t calls = 0;
  double ms = 0;
  double share = 0;  // share of the eager forward's time
};

// Returns the sums by operator for each forward, in descending order of time.
std::vector<OperatorSum> sums_of(const std::vector<Profiled>& profiled) {
  std::vector<OperatorSum> all;
  for (const Profiled& p : profiled) {
    std::map<std::string, OperatorSum> by_name;
    for (const Call& call : p.operators) {
      OperatorSum& sum = by_name[call.name];
      ++sum.calls;
      sum.ms += call.median_ms();
    }
    const std::size_t first = all.size();
    for (const auto& [name, sum] : by_name)
      all.push_back({p.forward, name, sum.calls, sum.ms, p.eager_ms > 0 ? sum.ms / p.eager_ms : 0});
    std::stable_sort(all.begin() + static_cast<std::ptrdiff_t>(first), all.end(),
                     [](const OperatorSum& a, const OperatorSum& b) { return a.ms > b.ms; });
  }
  return all;
}

std::string table_of(const std::vector<OperatorSum>& sums) {
  Table table({"forward", "operator", ">calls", ">ms", ">of eager"});
  for (const OperatorSum& sum : sums)
    table.add({sum.forward, sum.name, std::to_string(sum.calls), number_text(sum.ms),
               fmt::format("{:.1f} %", 100 * sum.share)});
  return table.text();
}

struct SlowOperator {
  const Profiled* of;
  const Call* call;
};

std::vector<SlowOperator> slowest(const std::vector<Profiled>& profiled) {
  std::vector<SlowOperator> all;
  for (const Profiled& p : profiled)
    for (const Call& call : p.operators) all.push_back({&p, &call});
  std::stable_sort(all.begin(), all.end(), [](const SlowOperator& a, const SlowOperator& b) {
    return a.call->median_ms() > b.call->median_ms();
  });
  all.resize(std::min(all.size(), kShown));
  return all;
}

std::string table_of(const std::vector<SlowOperator>& slow) {
  Table table({"forward", "piece", "operator", "result", ">ms", ">of eager", ">read and written", "shapes"});
  for (const SlowOperator& s : slow) {
    const Json& args = s.call->args;
    table.add({s.of->forward, args.find("piece")->as_string(), s.call->name, args.find("result")->as_string(),
               number_text(s.call->median_ms()), fmt::format("{:.1f} %", 100 * s.call->median_ms() / s.of->eager_ms),
               bytes_text(args.find("bytes")->as_int()), args.find("shapes")->as_string()});
  }
  return table.text();
}

Json json_of(const std::vector<Profiled>& profiled, const std::vector<SlowOperator>& slow, Json json) {
  Json forwards = Json::array();
  for (const Profiled& p : profiled) {
    Json row = Json::object();
    row.set("forward", p.forward).set("replay_ms", p.replay_ms).set("eager_ms", p.eager_ms);
    row.set("operators", p.operators.size());
    forwards.push_back(std::move(row));
  }
  Json rows = Json::array();
  for (const SlowOperator& s : slow) {
    Json row = s.call->args;
    row.set("forward", s.of->forward).set("ms", s.call->median_ms());
    rows.push_back(std::move(row));
  }
  Json sums = Json::array();
  for (const OperatorSum& sum : sums_of(profiled)) {
    Json row = Json::object();
    row.set("forward", sum.forward).set("operator", sum.name).set("calls", sum.calls).set("ms", sum.ms);
    sums.push_back(std::move(row));
  }
  json.set("forwards", std::move(forwards)).set("by_operator", std::move(sums)).set("slowest", std::move(rows));
  return json;
}

}  // namespace

Status bench_profile(const BenchOptions& options) {
  TRY(refuse_ranks(options, "bench profile", "the calls of one rank"));
  TRY(write_file(options.output, ""));  // reports an unwritable file before anything is measured
  const std::unique_ptr<Engine> engine = TRY(Engine::create(bench_engine_options(options)));
  ModelRunner& runner = engine->runner();
  TRY(runner.capture_rest());  // otherwise an uncaptured size would be measured with padding
  TRY(runner.fill_adapters());
  ChromeTrace trace;
  std::vector<Profiled> profiled;
  std::int64_t process = 0;
  for (const std::int64_t tokens : options.num_tokens) {
    ForwardBatch batch = TRY(make_prefill_batch(runner, tokens));
    assign_adapters(batch, options.adapters);
    profiled.push_back(TRY(profile(runner, batch, options, ++process, trace)));
  }
  for (const std::int64_t requests : options.batch_sizes) {
    ForwardBatch batch = TRY(make_decode_batch(runner, requests, options.context));
    assign_adapters(batch, options.adapters);
    profiled.push_back(TRY(profile(runner, batch, options, ++process, trace)));
  }
  TRY(write_file(options.output, std::move(trace).finish(bench_header(options, *engine)).dump() + "\n"));

  const std::vector<SlowOperator> slow = slowest(profiled);
  if (options.json) return write_output(json_of(profiled, slow, bench_header(options, *engine)).dump() + "\n");
  std::string text = bench_title(options, *engine);
  for (const Profiled& p : profiled)
    text += fmt::format("  {}: {} ms in parts, {} ms operator by operator\n", p.forward, number_text(p.replay_ms),
                        number_text(p.eager_ms));
  return write_output(fmt::format("{}\n{}\n{}\n  every part and operator: {}\n", text, table_of(sums_of(profiled)),
                                  table_of(slow), options.output));
}

}  // namespace tessera::cli
