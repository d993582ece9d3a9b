"""Holds the HTTP API against the official openai client, with its validation made strict (but for some checks,
which say why).

    tests/http/check_openai.py http://HOST:PORT

The coordinator there serves a model with a chat template, by jobs that compute alike. Not a part of
CI: the client comes from PyPI (pip install openai). Prints what failed, and exits with 1 then.
"""

import sys
import traceback

import openai

PROMPT = "KING HENRY:\nWhat"
MESSAGES = [{"role": "user", "content": "Good morrow, cousin."}]
CHECKS = []


def check(function):
    CHECKS.append(function)
    return function


def lenient(function):
    function.lenient = True
    return function


@check
def models(client):
    names = [model.id for model in client.models.list()]
    assert len(names) == 1, names
    assert client.models.retrieve(names[0]).id == names[0]


@check
def completion(client):
    answer = client.completions.create(model=NAME, prompt=PROMPT, max_tokens=12, temperature=0)
    assert answer.choices[0].finish_reason == "length" and answer.choices[0].text
    assert answer.usage.completion_tokens == 12
    again = client.completions.create(model=NAME, prompt=[PROMPT, PROMPT], max_tokens=12, temperature=0)
    assert [choice.text for choice in again.choices] == [answer.choices[0].text] * 2


@check
def embeddings(client):
    texts = ["Good morrow, cousin.", "Shall I compare thee to a summer's day?", "Good morrow, cousin!"]
    answer = client.embeddings.create(model=NAME, input=texts, encoding_format="float")
    vectors = [item.embedding for item in answer.data]
    assert [item.index for item in answer.data] == [0, 1, 2] and answer.usage.prompt_tokens > 0
    assert all(abs(sum(x * x for x in vector) - 1) < 1e-4 for vector in vectors)

    def alike(i, j):
        return sum(a * b for a, b in zip(vectors[i], vectors[j]))

    assert alike(0, 2) > max(alike(0, 1), alike(1, 2)), (alike(0, 2), alike(0, 1), alike(1, 2))


@check
@lenient  # it decodes base64, which it asks for where it is not told, behind its validation
def embeddings_as_base64(client):
    text = "Good morrow, cousin."
    floats = client.embeddings.create(model=NAME, input=text, encoding_format="float").data[0].embedding
    again = client.embeddings.create(model=NAME, input=text).data[0].embedding
    assert len(again) == len(floats) and max(abs(a - b) for a, b in zip(again, floats)) < 1e-6


@check
@lenient  # finish_reason of all but the last chunk
def completion_stream(client):
    whole = client.completions.create(model=NAME, prompt=PROMPT, max_tokens=12, temperature=0)
    stream = client.completions.create(model=NAME, prompt=PROMPT, max_tokens=12, temperature=0, stream=True,
                                       stream_options={"include_usage": True})
    chunks = list(stream)
    assert "".join(c.choices[0].text for c in chunks if c.choices) == whole.choices[0].text
    assert chunks[-1].usage.total_tokens == whole.usage.total_tokens
    assert chunks[-2].choices[0].finish_reason == "length"


@check
@lenient  # the first token has no probability
def completion_logprobs(client):
    answer = client.completions.create(model=NAME, prompt=PROMPT, max_tokens=4, logprobs=3, echo=True, temperature=0)
    logprobs = answer.choices[0].logprobs
    count = answer.usage.prompt_tokens + 4
    assert len(logprobs.tokens) == len(logprobs.token_logprobs) == len(logprobs.text_offset) == count
    assert logprobs.token_logprobs[0] is None and all(p <= 0 for p in logprobs.token_logprobs[1:])
    assert "".join(logprobs.tokens) == answer.choices[0].text
    assert all(len(top) == 3 for top in logprobs.top_logprobs[1:])


@check
@lenient  # likewise, and finish_reason of all but the last chunk
def completion_logprobs_stream(client):
    arguments = {"model": NAME, "prompt": PROMPT, "max_tokens": 5, "logprobs": 2, "echo": True, "temperature": 0}
    whole = client.completions.create(**arguments)
    chunks = list(client.completions.create(**arguments, stream=True, stream_options={"include_usage": True}))
    assert chunks[-1].usage.total_tokens == whole.usage.total_tokens
    pieces = [chunk.choices[0] for chunk in chunks if chunk.choices]
    assert pieces[0].text.startswith(PROMPT) and "".join(piece.text for piece in pieces) == whole.choices[0].text
    assert pieces[-1].finish_reason == whole.choices[0].finish_reason == "length"
    for name, rows in whole.choices[0].logprobs.model_dump().items():
        assert [row for piece in pieces for row in getattr(piece.logprobs, name)] == rows, name


@check
def response(client):
    answer = client.responses.create(model=NAME, input="Good morrow, cousin.", max_output_tokens=10, temperature=0)
    assert answer.status == "incomplete" and answer.incomplete_details.reason == "max_output_tokens"
    assert answer.output_text and answer.usage.output_tokens == 10
    chat = client.chat.completions.create(model=NAME, messages=MESSAGES, max_tokens=10, temperature=0)
    assert answer.output_text == chat.choices[0].message.content
    history = MESSAGES + [item.model_dump() for item in answer.output] + [{"role": "user", "content": "And?"}]
    assert client.responses.create(model=NAME, input=history, max_output_tokens=4, temperature=0).output_text


@check
def response_stream(client):
    whole = client.responses.create(model=NAME, input="Good morrow", max_output_tokens=10, temperature=0)
    events = list(client.responses.create(model=NAME, input="Good morrow", max_output_tokens=10, temperature=0,
                                          stream=True))
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert text == whole.output_text == events[-1].response.output_text
    assert [event.sequence_number for event in events] == list(range(len(events)))


@check
def chat(client):
    answer = client.chat.completions.create(model=NAME, messages=MESSAGES, max_completion_tokens=10, temperature=0)
    message = answer.choices[0].message
    assert message.role == "assistant" and message.content
    parts = [{"role": "user", "content": [{"type": "text", "text": MESSAGES[0]["content"]}]}]
    same = client.chat.completions.create(model=NAME, messages=parts, max_tokens=10, temperature=0)
    assert same.choices[0].message.content == message.content


@check
def chat_stream(client):
    whole = client.chat.completions.create(model=NAME, messages=MESSAGES, max_tokens=10, temperature=0)
    chunks = list(client.chat.completions.create(model=NAME, messages=MESSAGES, max_tokens=10, temperature=0,
                                                 stream=True, stream_options={"include_usage": True}))
    assert chunks[0].choices[0].delta.role == "assistant"
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == whole.choices[0].message.content, text
    assert chunks[-1].usage.completion_tokens == 10 and not chunks[-1].choices


@check
def chat_stream_helper(client):
    whole = client.chat.completions.create(model=NAME, messages=MESSAGES, max_tokens=20, temperature=0)
    text = whole.choices[0].message.content
    word = text.split()[3]
    with client.chat.completions.stream(model=NAME, messages=MESSAGES, max_tokens=20, temperature=0, stop=word) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()
    assert {"chunk", "content.delta", "content.done"} <= kinds, kinds
    assert final.choices[0].finish_reason == "stop"
    assert final.choices[0].message.content == text[:text.index(word)]


@check
def chat_logprobs(client):
    answer = client.chat.completions.create(model=NAME, messages=MESSAGES, max_tokens=5, temperature=0,
                                            logprobs=True, top_logprobs=2)
    rows = answer.choices[0].logprobs.content
    assert len(rows) == 5 and all(len(row.top_logprobs) == 2 for row in rows)
    assert bytes(b for row in rows for b in row.bytes).decode() == answer.choices[0].message.content
    assert all(row.top_logprobs[0].token == row.token for row in rows)  # temperature 0


@check
def several_answers(client):
    answer = client.chat.completions.create(model=NAME, messages=MESSAGES, max_tokens=8, n=3, seed=5, temperature=1)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    again = client.chat.completions.create(model=NAME, messages=MESSAGES, max_tokens=8, n=3, seed=5, temperature=1)
    assert [c.message.content for c in again.choices] == [c.message.content for c in answer.choices]


@check
def stop(client):
    whole = client.completions.create(model=NAME, prompt=PROMPT, max_tokens=30, temperature=0).choices[0].text
    word = whole.split()[2]
    cut = client.completions.create(model=NAME, prompt=PROMPT, max_tokens=30, temperature=0, stop=[word])
    assert cut.choices[0].text == whole[:whole.index(word)] and cut.choices[0].finish_reason == "stop"


@check
def extra_samplers(client):
    extra = {"top_k": 5, "min_p": 0.01, "repetition_penalty": 1.1, "ignore_eos": True, "min_tokens": 3}
    client.completions.create(model=NAME, prompt=PROMPT, max_tokens=5, seed=5, extra_body=extra)


@check
def errors(client):
    for status, kind, arguments in (
        (400, openai.BadRequestError, {"temperature": -1}),
        (400, openai.BadRequestError, {"max_tokens": 10**6}),
        (404, openai.NotFoundError, {"model": "nobody"}),
    ):
        try:
            client.completions.create(**{"model": NAME, "prompt": PROMPT, **arguments})
        except kind as error:
            assert error.status_code == status and error.body["message"], error.body
        else:
            raise AssertionError(f"{arguments} was taken")
    try:
        client.chat.completions.create(model=NAME, messages=MESSAGES, tools=[{"type": "function", "function": {"name": "f"}}])
    except openai.BadRequestError as error:
        assert error.param == "tools" and "not yet" in error.body["message"]
    else:
        raise AssertionError("tools were taken")


def main():
    global NAME
    clients = {strict: openai.OpenAI(base_url=sys.argv[1] + "/v1", api_key="none", max_retries=0,
                                     _strict_response_validation=strict) for strict in (False, True)}
    NAME = next(iter(clients[True].models.list())).id
    failed = 0
    for function in CHECKS:
        try:
            function(clients[not getattr(function, "lenient", False)])
            print(f"ok      {function.__name__}")
        except Exception:  # each check is told
            failed += 1
            print(f"FAILED  {function.__name__}")
            traceback.print_exc()
    print(f"{len(CHECKS) - failed} passed, {failed} failed, with openai {openai.__version__}")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
