// What `bench graphs` measured: one batch in every form it has, round by round, and what the rounds come to.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tessera/base/json.h"
#include "tessera/cli/bench/statistics.h"

namespace tessera::cli {

// Milliseconds of each round, in which every form ran once. Empty: the batch has no such form.
struct FormTimes {
  std::vector<double> eager;   // operators one by one
  std::vector<double> pieces;  // graphs of pieces, split operators between them
  std::vector<double> full;    // one graph
};

struct FormRow {
  std::string compiler;
  bool decode = false;     // else a prefill
  std::int64_t count = 0;  // tokens; requests of a decode
  std::int64_t size = 0;   // that its graphs were captured for; 0: it has none
  std::int64_t cuts = 0;   // between the pieces
  FormTimes times;

  std::string name() const;  // "prefill of 64 tokens"
};

// A form's time over another's, in the same round.
struct FormRatio {
  double median = 0;
  Interval interval;  // of the median, 95 %
};

struct FormResult {
  std::optional<double> eager_ms, pieces_ms, full_ms;  // medians
  std::optional<FormRatio> pieces_to_eager, full_to_eager;
  std::optional<double> cut_us;  // median of what pieces take longer than one graph, by cut
  // The form that serves the batch by default: a prefill's pieces, or a decode's one graph.
  std::optional<double> graph_ms;
  std::optional<FormRatio> graph_to_eager;
};
FormResult form_result(const FormRow& row);

// A graph is slower than eager where its time is above eager's by this factor: measurements of one thing differ by
// less.
inline constexpr double kMostGraphToEager = 1.01;

// The table in Markdown, with a line for each row. A paragraph below says whether graphs of exactly a batch's size are
// slower than eager forwards anywhere, and what cuts into pieces cost. Rows of a further compiler have their graphs'
// time divided by that of the first compiler's graphs.
std::string to_markdown(std::span<const FormRow> rows);
Json to_json(std::span<const FormRow> rows);

}  // namespace tessera::cli
