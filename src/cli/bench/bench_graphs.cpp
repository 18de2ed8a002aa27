// Compares three forms of every batch: operators that run one by one, a graph for each piece of the forward, and one
// graph for the whole forward. Each round runs every form once, so that clock rates and temperature are similar for all
// forms.
#include <fmt/format.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "tessera/base/progress.h"
#include "tessera/cli/bench/bench.h"
#include "tessera/cli/bench/bench_batches.h"
#include "tessera/cli/bench/graph_forms.h"
#include "tessera/cli/output.h"
#include "tessera/cli/session/session.h"
#include "tessera/piecewise/ladder.h"

namespace tessera::cli {
namespace {

using Clock = std::chrono::steady_clock;

// One form in which a batch runs, for example as one graph for each piece. prepare() runs first. It makes plans and
// uploads inputs. Then enqueue() runs. Only enqueue() is timed.
struct Form {
  std::function<Status()> prepare;
  std::function<Status()> enqueue;
  std::vector<double>& times;
};

class FormBench {
 public:
  FormBench(ModelRunner& runner, std::string compiler, std::int64_t repeat)
      : runner_(runner),
        step_(runner.step()),
        captures_(runner.captures()),
        table_(runner.dispatch_table()),
        compiler_(std::move(compiler)),
        repeat_(repeat) {}

  Result<FormRow> measure_prefill(const ForwardBatch& batch) {
    FormRow row{.compiler = compiler_, .count = batch.num_tokens(), .times = {}};
    TRY(prefill().make_ready(row.count));
    std::vector<Form> forms;
    forms.push_back(body(
        batch, row.count, [&] { return prefill().run(row.count); }, row.times.eager));
    TRY(add_graphs(batch, row, forms));
    // A full graph serves a batch only if every request has at least two rows. Other batches run as pieces.
    const bool has_full = row.cuts > 0 && prefill().executable().can_be_full() && shape_of(batch).several_rows_each;
    const bool had_full = row.size > 0 && prefill().has_full(row.size);
    if (has_full) {
      TRY(prefill().capture_full(row.size));
      forms.push_back(body(
          batch, row.size, [&] { return prefill().replay(row.size, GraphForm::kFull); }, row.times.full));
    }
    const Status measured = run(forms);
    if (has_full && !had_full) prefill().drop_full(row.size);
    TRY(measured);
    return row;
  }

  Result<FormRow> measure_decode(const ForwardBatch& batch) {
    FormRow row{.compiler = compiler_, .decode = true, .count = batch.num_requests(), .times = {}};
    std::vector<Form> forms;
    const std::optional<std::int64_t> size = round_up(table_.decode_sizes, row.count);
    const std::vector<SampleRow> greedy(batch.wanted_rows.size());
    const auto prepare = [&] {
      TRY(step_.stage_decode({.batch = batch}, *size, greedy));
      return step_.launcher().upload();
    };
    if (size) {
      TRY(make_captured(decode(), *size));
      forms.push_back({prepare, [&] { return decode().run(*size); }, row.times.eager});
      forms.push_back({prepare, [&] { return decode().replay(*size); }, row.times.full});
    } else if (row.count > most_head_rows()) {
      return invalid_argument(fmt::format("--batch-size: {} is too large; the largest graph of the head has {} rows",
                                          row.count, most_head_rows()));
    } else {
      TRY(prefill().make_ready(row.count));
      forms.push_back(body(
          batch, row.count, [&] { return prefill().run(row.count); }, row.times.eager));
    }
    TRY(add_graphs(batch, row, forms));
    row.size = size.value_or(row.size);
    // A decode's single graph uses other kernels than the graphs of its pieces do, so the difference between their
    // times is not the cost of cutting the forward into pieces.
    row.cuts = 0;
    TRY(run(forms));
    return row;
  }

 private:
  GraphRunner& prefill() { return runner_.runner(RunnerRole::kPrefill); }
  GraphRunner& decode() { return runner_.runner(RunnerRole::kDecode); }
  std::int64_t most_head_rows() { return runner_.runner(RunnerRole::kHead).spec().ladder.back(); }

  Status make_captured(GraphRunner& runner, std::int64_t size) {
    return runner.captured(size) ? ok_status() : captures_.capture(runner, size);
  }

  // Returns a form that runs the prefill runner at `size`, and then the head on the rows whose logits the batch asks
  // for.
  Form body(const ForwardBatch& batch, std::int64_t size, std::function<Status()> enqueue, std::vector<double>& times) {
    GraphRunner& head = runner_.runner(RunnerRole::kHead);
    const std::int64_t rows = head.padded_size(batch.num_wanted_rows());
    const auto prepare = [this, &batch, &head, size, rows]() -> Status {
      const std::vector<SampleRow> greedy(batch.wanted_rows.size());
      TRY(step_.stage_prefill({.batch = batch, .sampling = greedy}, size));
      TRY(head.make_ready(rows));
      return step_.launcher().upload();
    };
    const auto both = [&head, rows, enqueue = std::move(enqueue)]() -> Status {
      TRY(enqueue());
      return head.run(rows);
    };
    return {prepare, both, times};
  }

  // Adds the form with the prefill runner's graphs, if the runner has a size for the batch. These are the graphs of the
  // forward's pieces, or one graph if the forward is not cut into pieces.
  Status add_graphs(const ForwardBatch& batch, FormRow& row, std::vector<Form>& forms) {
    const std::optional<std::int64_t> size = round_up(table_.prefill_sizes, batch.num_tokens());
    if (!size || batch.num_wanted_rows() > most_head_rows()) return ok_status();
    TRY(make_captured(prefill(), *size));
    row.size = *size;
    row.cuts = prefill().executable().graph().num_split_ops();
    if (row.cuts == 0 && row.decode) return ok_status();  // the decode runner's graph is measured instead
    forms.push_back(body(
        batch, *size, [this, size] { return prefill().replay(*size); },
        row.cuts > 0 ? row.times.pieces : row.times.full));
    return ok_status();
  }

  // Times the forms alternately by the host's clock. Each run starts on an idle device and ends when the device is idle
  // again.
  Status run(std::span<const Form> forms) {
    constexpr std::int64_t kWarmUps = 3;
    for (std::int64_t round = -kWarmUps; round < repeat_; ++round) {
      for (const Form& form : forms) {
        TRY(form.prepare());
        TRY(runner_.stream().synchronize());
        const Clock::time_point start = Clock::now();
        TRY(form.enqueue());
        TRY(runner_.stream().synchronize());
        if (round >= 0) form.times.push_back(std::chrono::duration<double, std::milli>(Clock::now() - start).count());
      }
    }
    return ok_status();
  }

  ModelRunner& runner_;
  ForwardStep& step_;
  SizeCapture& captures_;
  const DispatchTable& table_;
  std::string compiler_;
  std::int64_t repeat_;
};

// The requested numbers of tokens and of requests. If none were requested, these are all captured sizes.
struct Shapes {
  std::vector<std::int64_t> tokens;
  std::vector<std::int64_t> requests;
};

Shapes shapes_of(const BenchOptions& options, const ModelRunner& runner) {
  if (!options.num_tokens.empty() || !options.batch_sizes.empty()) return {options.num_tokens, options.batch_sizes};
  const DispatchTable& table = runner.dispatch_table();
  Shapes shapes{table.prefill_sizes, table.decode_sizes};
  const auto no_more_than = [](std::vector<std::int64_t>& sizes, std::int64_t most) {
    std::erase_if(sizes, [most](std::int64_t size) { return size > most; });
  };
  no_more_than(shapes.tokens, max_prefill_tokens(runner));
  no_more_than(shapes.requests, max_decode_requests(runner, options.context));
  return shapes;
}

Status measure_engine(const BenchOptions& options, ModelRunner& runner, const std::string& compiler,
                      std::vector<FormRow>& rows) {
  const Shapes shapes = shapes_of(options, runner);
  FormBench bench(runner, compiler, options.repeat);
  Progress progress("Measuring graphs", std::ssize(shapes.tokens) + std::ssize(shapes.requests), "batches",
                    progress_wanted());
  for (const std::int64_t tokens : shapes.tokens) {
    rows.push_back(TRY(bench.measure_prefill(TRY(make_prefill_batch(runner, tokens)))));
    progress.advance(1);
  }
  for (const std::int64_t requests : shapes.requests) {
    rows.push_back(TRY(bench.measure_decode(TRY(make_decode_batch(runner, requests, options.context)))));
    progress.advance(1);
  }
  return ok_status();
}

}  // namespace

// Runs one engine at a time, so that each has the machine to itself.
Status bench_graphs(const BenchOptions& options) {
  TRY(refuse_ranks(options, "bench graphs", "the forms of one rank"));
  std::vector<std::string> compilers = options.compilers;
  if (compilers.empty()) compilers.push_back(options.engine.graphs.compiler);
  for (const std::string& name : compilers)
    TRY(options.engine.registry->compilers.check(name).with_context("--compilers"));
  std::vector<FormRow> rows;
  Json json = Json::object();
  std::string title;
  for (const std::string& compiler : compilers) {
    EngineOptions engine_options = bench_engine_options(options);
    engine_options.graphs.compiler = compiler;
    const std::unique_ptr<Engine> engine = TRY(Engine::create(engine_options));
    if (title.empty()) {
      title = bench_title(options, *engine);
      json = bench_header(options, *engine);
    }
    TRY(measure_engine(options, engine->runner(), compiler, rows));
  }
  json.set("context", options.context).set("rows", to_json(rows));
  return write_output(options.json ? json.dump() + "\n" : title + to_markdown(rows));
}

}  // namespace tessera::cli
