// The form of the answers to /v1/embeddings and /v1/classify: one entry for each input, in the order of the request,
// and then the token usage. A derived class says what a request's result is, and how the result's entry is written.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "tessera/server/api_job.h"
#include "tessera/server/fields/json_writer.h"
#include "tessera/server/openai/pooled/pooled_fields.h"

namespace tessera {

class ListAnswer : public Answer {
 public:
  // `inputs` is the number of requests.
  ListAnswer(std::string id, std::string model, std::size_t inputs);

  void on_event(std::size_t index, const RequestEvent&, Completion* end, std::string&) override;
  std::string body() override { return parts().all(); }
  Usage usage() const override;
  std::optional<JsonParts> large_body() override { return parts(); }

 protected:
  // Returns the result of a request that has ended: its vector or logits. The caller may move it out of `end`.
  virtual std::vector<float>& result_of(Completion& end) const = 0;
  // Writes the members of an entry after "index".
  virtual void write_entry(JsonWriter& json, const std::vector<float>& result) const = 0;
  // Writes the members of an entry before "index".
  virtual void begin_entry(JsonWriter&) const {}

 private:
  JsonParts parts();

  std::string id_;
  std::string model_;
  std::vector<std::vector<float>> results_;  // one for each input
  PooledUsage usage_;
};

// Reads "input" and makes a request for each of its texts or lists of ids. The caller must set what each request
// returns.
ApiResult<std::vector<Request>> read_inputs(const ApiFields& fields, const PooledFields& pooled,
                                            const ServedModel& model);

}  // namespace tessera
