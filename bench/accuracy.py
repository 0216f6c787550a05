"""Token counts against tiktoken over the recorded results: exact ones must be equal, sampled ones near."""

import sys

from tqdm import tqdm

from bench import corpus
from bench.ranks import o200k_base
from content.tokens import Meter, load_encoding

MAX_RESULT_BYTES = 12_288


def main() -> None:
    records = corpus.records()
    if not records:
        sys.exit("No recorded results: set RECORDED_RESULTS to a folder with tool_results.jsonl.")
    truth, ours = o200k_base(), load_encoding("o200k_base")
    exact, wrong, errors = 0, 0, []
    for record in tqdm(records, desc="counting"):
        data = record["text"].encode()
        meter = Meter(ours)
        if len(data) > MAX_RESULT_BYTES:
            meter.estimate_tokens()
        meter.feed(data)
        measure = meter.finish()
        tokens = len(truth.encode_ordinary(record["text"]))
        if measure.tokens_exact:
            exact += 1
            wrong += measure.tokens != tokens
        else:
            errors.append(abs(measure.tokens - tokens) / tokens)
    errors.sort()
    at = [errors[min(len(errors) - 1, int(len(errors) * share))] for share in (0.5, 0.9, 1)]
    print("| count | results | wrong | error p50 | p90 | max |\n|---|---|---|---|---|---|")
    print(f"| exact | {exact} | {wrong} | 0 | 0 | 0 |")
    print(f"| sampled | {len(errors)} | - | {at[0]:.1%} | {at[1]:.1%} | {at[2]:.1%} |")


if __name__ == "__main__":
    main()
