#include "tessera/cli/generate/sampling_flags.h"

#include <fmt/format.h>

namespace tessera::cli {
namespace {

struct NumberFlag {
  const char* name;
  const char* help;
  bool (*accepts)(double value);
  const char* accepted;
};

void add_number(CommandFlags& add, const NumberFlag& flag, std::optional<double>& to) {
  add.value(flag.name, "X", flag.help, [flag, &to](const std::string& name, const std::string& text) {
    to = TRY(parse_number(name, text));
    if (flag.accepts(*to)) return ok_status();
    return invalid_argument(fmt::format("{}: {} is not accepted; {} is", name, text, flag.accepted));
  });
}

void add_integer(CommandFlags& add, const char* name, const char* help, IntegerRange range,
                 std::optional<std::int64_t>& to) {
  add.value(name, "N", help, [range, &to](const std::string& flag, const std::string& text) {
    to = TRY(parse_integer(flag, text, range));
    return ok_status();
  });
}

void add_stop_flags(CommandFlags& add, GivenSampling& given) {
  add.values("--stop", "TEXT", "the text ends before this; repeatable",
             [&given](const std::string& flag, const std::string& text) {
               if (text.empty()) return invalid_argument(fmt::format("{}: the text is empty", flag));
               given.stop.push_back(text);
               return ok_status();
             });
  add.flag("--ignore-eos", "go on after an end-of-text token", given.ignore_eos);
}

template <class T>
void set_if_given(Json& body, const char* name, const std::optional<T>& value) {
  if (value) body.set(name, *value);
}

}  // namespace

void add_sampling_flags(CommandFlags& add, const std::string& title, GivenSampling& given) {
  add.group(title);
  add_number(
      add,
      {"--temperature", "0 or more; 0 is greedy", [](double x) { return x >= 0; }, "a number of 0 (greedy) or more"},
      given.temperature);
  add_integer(add, "--top-k", "keep the N most probable; 0: all", {0, INT32_MAX}, given.top_k);
  add_number(add,
             {"--top-p", "keep the smallest set of this probability, in (0, 1]; 1: all",
              [](double x) { return x > 0 && x <= 1; }, "a number in (0, 1]"},
             given.top_p);
  add_number(add,
             {"--min-p", "keep what is at least so probable beside the most probable, in [0, 1]",
              [](double x) { return x >= 0 && x <= 1; }, "a number in [0, 1]"},
             given.min_p);
  add_number(add,
             {"--repetition-penalty", "divides the logits of tokens that were there, in (0, 10]; 1: none",
              [](double x) { return x > 0 && x <= 10; }, "a number in (0, 10]"},
             given.repetition_penalty);
  const auto is_penalty = [](double x) { return x >= -2 && x <= 2; };
  add_number(add,
             {"--presence-penalty", "taken from the logits of tokens in the output, in [-2, 2]", is_penalty,
              "a number in [-2, 2]"},
             given.presence_penalty);
  add_number(
      add,
      {"--frequency-penalty", "the same for each time they are there, in [-2, 2]", is_penalty, "a number in [-2, 2]"},
      given.frequency_penalty);
  add_integer(add, "--seed", "same seed, same tokens", {0}, given.seed);
  add_integer(add, "--max-new-tokens", "at most so many", {}, given.max_new_tokens);
  add_stop_flags(add, given);
}

SamplingParams sampling_params(const GivenSampling& given) {
  SamplingParams params;
  const bool draws = given.top_k || given.top_p || given.min_p;
  params.temperature = given.temperature.value_or(draws ? 1 : 0);
  params.top_k = given.top_k.value_or(params.top_k);
  params.top_p = given.top_p.value_or(params.top_p);
  params.min_p = given.min_p.value_or(params.min_p);
  params.repetition_penalty = given.repetition_penalty.value_or(params.repetition_penalty);
  params.presence_penalty = given.presence_penalty.value_or(params.presence_penalty);
  params.frequency_penalty = given.frequency_penalty.value_or(params.frequency_penalty);
  params.seed = given.seed;
  return params;
}

StopConditions stop_conditions(const GivenSampling& given) {
  StopConditions stop;
  stop.max_new_tokens = given.max_new_tokens.value_or(stop.max_new_tokens);
  stop.texts = given.stop;
  stop.ignore_eos = given.ignore_eos;
  return stop;
}

void set_request_fields(const GivenSampling& given, Json& body) {
  set_if_given(body, "temperature", given.temperature);
  set_if_given(body, "top_k", given.top_k);
  set_if_given(body, "top_p", given.top_p);
  set_if_given(body, "min_p", given.min_p);
  set_if_given(body, "repetition_penalty", given.repetition_penalty);
  set_if_given(body, "presence_penalty", given.presence_penalty);
  set_if_given(body, "frequency_penalty", given.frequency_penalty);
  set_if_given(body, "seed", given.seed);
  set_if_given(body, "max_tokens", given.max_new_tokens);
  if (!given.stop.empty()) body.set("stop", Json(Json::Array(given.stop.begin(), given.stop.end())));
  if (given.ignore_eos) body.set("ignore_eos", true);
}

}  // namespace tessera::cli
