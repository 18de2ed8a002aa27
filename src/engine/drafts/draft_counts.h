// Chooses how many draft tokens each request of a step makes. For a step without prompts, the choice gives the most
// tokens per unit of time. For a step with prompts, the choice saves the most time.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace tessera {

// The drafts that one request can make. Draft k (from 1) is kept with probability acceptanceᵏ.
struct DraftOffer {
  double acceptance = 0;  // probability that a draft is kept if all drafts before it are
  std::int64_t most = 0;
  bool by_layer = false;
};

// The costs of a step, in milliseconds.
struct DraftCosts {
  // Returns the time of a forward of `requests` requests that have `rows` rows together. Returns nothing if the time is
  // unknown. An empty function means that no time is known.
  std::function<std::optional<double>(std::int64_t rows, std::int64_t requests)> forward_ms = {};
  // Returns the time of a forward in which prompts and decodes have `rows` rows together. Returns nothing if the time
  // is unknown. An empty function means that no time is known.
  std::function<std::optional<double>(std::int64_t rows)> prompts_ms = {};
  // Returns the time that the next-token layer takes to make one more draft for every request, or 0 if it is unknown.
  // An empty function means that there is no layer.
  std::function<double()> draft_ms = {};
  // Returns the ratio of measured to predicted times of steps with drafts, divided by the same ratio of steps without
  // drafts (DraftSlowdown). An empty function means 1.
  std::function<double(std::int64_t requests)> slowdown = {};
};

// What the drafts of a step are expected to save and to take, in milliseconds.
struct DraftSaving {
  double gained_ms = 0;      // time of the later steps that would otherwise give the kept drafts' tokens
  double taken_ms = 0;       // time by which the drafts make this step longer
  double predicted_ms = 0;   // time of this step with its drafts; 0 without drafts
  bool has_prompts = false;  // whether the step also computes prompts

  // Returns the predicted time of a step without prompts, or 0. It is not multiplied by DraftCosts::slowdown.
  double decode_ms() const { return has_prompts ? 0 : predicted_ms; }
};

class DraftCounts {
 public:
  // A step before drafts are added to it.
  struct Step {
    std::int64_t requests = 0;     // requests that decode, each with one row
    std::int64_t room = 0;         // maximum number of drafts that may be added
    std::int64_t prompt_rows = 0;  // rows of prompts that the step computes too
    bool is_full = false;          // drafts replace rows of prompts, because prompts fill the step
  };

  // Returns how many drafts to make for each offer. The span is valid until the next call. Adds the drafts one by one,
  // the most probable draft first, and compares the steps with 0 to step.room drafts. All of these steps are compared,
  // even if an added draft does not pay. Because of padding, a forward's cost jumps at some numbers of rows and stays
  // the same between them, so further drafts may pay again.
  //
  // A step without prompts should give the most tokens for its time. A step with prompts runs for the prompts anyway. A
  // draft in such a step costs the time by which the draft makes the step longer. A kept draft saves its request's
  // share of a later decode step. (If every later step has prompts too, a kept draft saves only one row of a later
  // step, but its request is still served sooner.)
  std::span<const std::int64_t> choose(std::span<const DraftOffer> offers, const Step& step, const DraftCosts& costs);
  // Returns what the chosen drafts are expected to save. All members are 0 if the step has no drafts. Returns nothing
  // if no costs are measured.
  const std::optional<DraftSaving>& saving() const { return saving_; }

 private:
  struct Next {
    double probability;  // probability that the offer's next draft is kept
    std::size_t offer;
  };
  std::vector<Next> heap_;
  std::vector<std::size_t> order_;  // the offers whose drafts were considered, the most probable draft first
  std::vector<std::int64_t> counts_;
  std::optional<DraftSaving> saving_;
};

}  // namespace tessera
