#include "tessera/cli/bench/graph_forms.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "tessera/cli/table.h"

namespace tessera::cli {
namespace {

std::optional<double> median_of(const std::vector<double>& values) {
  return values.empty() ? std::nullopt : std::optional(median(values));
}

// Calls `of` with the two forms' times of each round, and returns the results. If one of the forms was not measured,
// the list is empty.
std::vector<double> by_round(const std::vector<double>& a, const std::vector<double>& b,
                             const std::function<double(double, double)>& of) {
  std::vector<double> made;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) made.push_back(of(a[i], b[i]));
  return made;
}

std::optional<FormRatio> ratio(const std::vector<double>& form, const std::vector<double>& other) {
  const std::vector<double> ratios = by_round(form, other, std::divides<>());
  if (ratios.empty()) return std::nullopt;
  return FormRatio{.median = median(ratios), .interval = median_interval(ratios)};
}

constexpr const char* kNone = "–";

std::string cell(const std::optional<double>& number) { return number ? number_text(*number) : kNone; }

std::string cell(const std::optional<FormRatio>& ratio) {
  if (!ratio) return kNone;
  return fmt::format("{:.3f} [{:.3f}, {:.3f}]", ratio->median, ratio->interval.low, ratio->interval.high);
}

// Returns the row with the batch of `row` and the compiler of the first row. Returns null if there is no such row, or
// if `row` itself has that compiler.
const FormRow* baseline_of(const FormRow& row, std::span<const FormRow> rows) {
  if (row.compiler == rows.front().compiler) return nullptr;
  const auto found = std::ranges::find_if(rows, [&](const FormRow& other) {
    return other.compiler == rows.front().compiler && other.decode == row.decode && other.count == row.count;
  });
  return found == rows.end() ? nullptr : &*found;
}

std::optional<double> to_baseline(const FormRow& row, std::span<const FormRow> rows) {
  const FormRow* const baseline = baseline_of(row, rows);
  if (baseline == nullptr) return std::nullopt;
  const std::optional<double> ms = form_result(row).graph_ms;
  const std::optional<double> first = form_result(*baseline).graph_ms;
  return ms && first ? std::optional(*ms / *first) : std::nullopt;
}

std::string label(const FormRow& row) { return fmt::format("{} ({})", row.name(), row.compiler); }

// Returns a sentence that says whether graphs are slower than eager forwards for any batch. Padded batches do not
// count, because their additional cost comes from padding, and dispatch takes this cost into account separately.
std::string graphs_verdict(std::span<const FormRow> rows) {
  std::size_t compared = 0;
  std::size_t fewest = SIZE_MAX;
  double worst = 0;
  std::string worst_row;
  std::string above;
  for (const FormRow& row : rows) {
    const std::optional<FormRatio> to_eager = form_result(row).graph_to_eager;
    if (!to_eager || row.count != row.size) continue;
    ++compared;
    fewest = std::min(fewest, row.times.eager.size());
    if (to_eager->median > worst) {
      worst = to_eager->median;
      worst_row = label(row);
    }
    if (to_eager->median > kMostGraphToEager)
      above += fmt::format("{}{} {:.3f}", above.empty() ? "" : ", ", label(row), to_eager->median);
  }
  if (compared == 0) return "No batch has graphs of just its size.";
  return fmt::format("Graphs against eager, {} in {} each: {}; the worst is {:.3f}, {}.",
                     plural(static_cast<std::int64_t>(compared), "size"),
                     plural(static_cast<std::int64_t>(fewest), "pair"),
                     above.empty() ? fmt::format("no median is above {}", kMostGraphToEager)
                                   : fmt::format("above {} are {}", kMostGraphToEager, above),
                     worst, worst_row);
}

std::string cuts_verdict(std::span<const FormRow> rows) {
  std::vector<double> costs;
  const FormRow* dearest = nullptr;
  double most = 0;
  for (const FormRow& row : rows) {
    const std::optional<double> cut_us = form_result(row).cut_us;
    if (row.decode || !cut_us) continue;
    costs.push_back(*cut_us);
    if (dearest != nullptr && *cut_us <= most) continue;
    dearest = &row;
    most = *cut_us;
  }
  if (costs.empty()) return "";
  return fmt::format("\n\nA cut costs {} µs, the median of {}; the most is {} µs, {}.", number_text(median(costs)),
                     plural(std::ssize(costs), "prefill"), number_text(most), label(*dearest));
}

Json ratio_json(const std::optional<FormRatio>& ratio) {
  if (!ratio) return Json();
  Json json = Json::object();
  return std::move(json.set("median", ratio->median).set("low", ratio->interval.low).set("high", ratio->interval.high));
}

Json number_json(const std::optional<double>& number) { return number ? Json(*number) : Json(); }

}  // namespace

std::string FormRow::name() const {
  return decode ? "decode of " + plural(count, "request") : "prefill of " + plural(count, "token");
}

FormResult form_result(const FormRow& row) {
  const auto& [eager, pieces, full] = row.times;
  FormResult result{.eager_ms = median_of(eager),
                    .pieces_ms = median_of(pieces),
                    .full_ms = median_of(full),
                    .pieces_to_eager = ratio(pieces, eager),
                    .full_to_eager = ratio(full, eager),
                    .cut_us = std::nullopt,
                    .graph_ms = std::nullopt,
                    .graph_to_eager = std::nullopt};
  const std::vector<double> differences = by_round(pieces, full, std::minus<>());
  if (row.cuts > 0 && !differences.empty()) result.cut_us = 1e3 * median(differences) / static_cast<double>(row.cuts);
  const bool as_one = !full.empty() && (row.decode || pieces.empty());
  result.graph_ms = as_one ? result.full_ms : result.pieces_ms;
  result.graph_to_eager = as_one ? result.full_to_eager : result.pieces_to_eager;
  return result;
}

std::string to_markdown(std::span<const FormRow> rows) {
  if (rows.empty()) return "No batch was measured.\n";
  const bool several = std::ranges::any_of(rows, [&](const FormRow& row) { return row.compiler != rows[0].compiler; });
  std::string text =
      "| batch | size | compiler | eager, ms | pieces, ms | one graph, ms | pieces / eager | one graph / "
      "eager | a cut, µs |";
  if (several) text += fmt::format(" graphs / {}'s |", rows[0].compiler);
  text += fmt::format("\n|---|---:|---|---:|---:|---:|---|---|---:|{}\n", several ? "---:|" : "");
  for (const FormRow& row : rows) {
    const FormResult r = form_result(row);
    text += fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} | {} |", row.name(),
                        row.size == 0 ? kNone : count_text(row.size), row.compiler, cell(r.eager_ms), cell(r.pieces_ms),
                        cell(r.full_ms), cell(r.pieces_to_eager), cell(r.full_to_eager), cell(r.cut_us));
    if (several) text += fmt::format(" {} |", cell(to_baseline(row, rows)));
    text += "\n";
  }
  return text + "\n" + graphs_verdict(rows) + cuts_verdict(rows) + "\n";
}

Json to_json(std::span<const FormRow> rows) {
  Json list = Json::array();
  for (const FormRow& row : rows) {
    const FormResult r = form_result(row);
    Json json = Json::object();
    json.set("compiler", row.compiler).set("batch", row.decode ? "decode" : "prefill").set("count", row.count);
    json.set("size", row.size).set("cuts", row.cuts).set("eager_ms", number_json(r.eager_ms));
    json.set("pieces_ms", number_json(r.pieces_ms)).set("full_ms", number_json(r.full_ms));
    json.set("pieces_to_eager", ratio_json(r.pieces_to_eager)).set("full_to_eager", ratio_json(r.full_to_eager));
    json.set("graph_to_eager", ratio_json(r.graph_to_eager)).set("cut_us", number_json(r.cut_us));
    json.set("to_first_compiler", number_json(to_baseline(row, rows)));
    list.push_back(std::move(json));
  }
  return list;
}

}  // namespace tessera::cli
