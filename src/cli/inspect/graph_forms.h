// The results of `bench graphs`: one batch, measured in all its forms round by round, and the comparison of the forms.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tessera/base/json.h"
#include "tessera/cli/bench/statistics.h"

namespace tessera::cli {

// Milliseconds of each round, in which every form ran once. Empty: the batch does not have this form.
struct FormTimes {
  std::vector<double> eager;   // operators one by one
  std::vector<double> pieces;  // graphs of pieces, with split operators between them
  std::vector<double> full;    // one graph
};

struct FormRow {
  std::string compiler;
  bool decode = false;     // false: a prefill
  std::int64_t count = 0;  // tokens of a prefill, requests of a decode
  std::int64_t size = 0;   // captured size of its graphs; 0: no graphs
  std::int64_t cuts = 0;   // number of cuts between pieces
  FormTimes times;

  std::string name() const;  // "prefill of 64 tokens"
};

// The ratio of two forms' times in the same rounds.
struct FormRatio {
  double median = 0;
  Interval interval;  // 95 % confidence interval of the median
};

struct FormResult {
  std::optional<double> eager_ms, pieces_ms, full_ms;  // medians
  std::optional<FormRatio> pieces_to_eager, full_to_eager;
  std::optional<double> cut_us;  // median of the additional time per cut of pieces compared with one graph
  // The time of the form that runs the batch by default: the pieces of a prefill, or the one graph of a decode.
  std::optional<double> graph_ms;
  std::optional<FormRatio> graph_to_eager;
};
FormResult form_result(const FormRow& row);

// The factor of eager's time above which a graph counts as slower. Repeated measurements of the same thing differ by
// less.
inline constexpr double kMostGraphToEager = 1.01;

// Returns the table in Markdown, one line per row. A paragraph below says whether a graph of exactly a batch's size is
// slower than eager anywhere, and what the cuts into pieces cost. Rows of further compilers show the ratio between the
// times of their graphs and of the first compiler's graphs.
std::string to_markdown(std::span<const FormRow> rows);
Json to_json(std::span<const FormRow> rows);

}  // namespace tessera::cli
