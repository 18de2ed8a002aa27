// Holds the results of `bench graphs`. Each batch is measured in several forms: eagerly, with a graph for each piece of
// the forward, and as one graph. Each round runs every form once, and the forms are compared within the rounds.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tessera/base/json.h"
#include "tessera/cli/bench/statistics.h"

namespace tessera::cli {

// The times of the rounds in milliseconds. Each round runs every form once. A member is empty if the batch does not
// have that form.
struct FormTimes {
  std::vector<double> eager;   // operators one by one
  std::vector<double> pieces;  // a graph for each piece, with split operators between them
  std::vector<double> full;    // one graph
};

struct FormRow {
  std::string compiler;
  bool decode = false;     // false: a prefill
  std::int64_t count = 0;  // tokens of a prefill, requests of a decode
  std::int64_t size = 0;   // captured size of the batch's graphs; 0: no graphs
  std::int64_t cuts = 0;   // number of cuts between pieces
  FormTimes times;

  std::string name() const;  // "prefill of 64 tokens"
};

// Summarises the ratios of two forms' times. Each round gives one ratio.
struct FormRatio {
  double median = 0;
  Interval interval;  // 95 % confidence interval of the median
};

struct FormResult {
  std::optional<double> eager_ms, pieces_ms, full_ms;  // medians
  std::optional<FormRatio> pieces_to_eager, full_to_eager;
  std::optional<double> cut_us;  // median of the extra time of pieces over one graph, divided by the number of cuts
  // The time of the default form: pieces for a prefill, one graph for a decode. If the default form was not measured,
  // this is the time of the other one of these two forms.
  std::optional<double> graph_ms;
  std::optional<FormRatio> graph_to_eager;
};
FormResult form_result(const FormRow& row);

// A graph counts as slower if its time exceeds the eager time multiplied by this factor. Repeated measurements of the
// same work differ by less than one percent.
inline constexpr double kMostGraphToEager = 1.01;

// Returns the table in Markdown, one line per row. A paragraph below the table says whether any unpadded batch is
// slower with graphs than eagerly, and how much time each cut between two pieces costs. If there are several compilers,
// the rows of each later compiler also show the ratio of its graphs' times to the first compiler's times.
std::string to_markdown(std::span<const FormRow> rows);
Json to_json(std::span<const FormRow> rows);

}  // namespace tessera::cli
