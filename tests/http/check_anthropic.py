"""Holds /v1/messages against the official anthropic client, with its validation made strict.

    tests/http/check_anthropic.py http://HOST:PORT

The coordinator there serves a model with a chat template. Not a part of CI: the client comes from PyPI
(pip install anthropic). Exits with an error at the first thing that is not as it should be.
"""

import sys

import anthropic

client = anthropic.Anthropic(base_url=sys.argv[1], api_key="none", max_retries=0, _strict_response_validation=True)
model = next(iter(client.get("/v1/models", cast_to=dict)["data"]))["id"]
asked = {"model": model, "max_tokens": 12, "extra_body": {"temperature": 0},
         "messages": [{"role": "user", "content": "Good morrow, cousin."}]}

message = client.messages.create(**asked)
assert message.role == "assistant" and message.stop_reason == "max_tokens", message
assert message.usage.output_tokens == 12 and message.content[0].text
blocks = [{"type": "text", "text": "Good morrow, cousin."}]
assert client.messages.create(**{**asked, "messages": [{"role": "user", "content": blocks}]}).content == message.content

with client.messages.stream(**asked) as stream:
    text = "".join(stream.text_stream)
    final = stream.get_final_message()
assert text == message.content[0].text == final.content[0].text, (text, message)
assert final.usage.output_tokens == 12 and final.stop_reason == "max_tokens"

word = text.split()[2]
cut = client.messages.create(**asked, stop_sequences=[word])
assert cut.stop_reason == "stop_sequence" and cut.stop_sequence == word
assert cut.content[0].text == text[:text.index(word)]
assert client.messages.count_tokens(model=model, messages=asked["messages"]).input_tokens == message.usage.input_tokens
try:
    client.messages.create(**{**asked, "max_tokens": 3000})
except anthropic.BadRequestError as error:
    assert error.body["error"]["type"] == "invalid_request_error", error.body
else:
    raise AssertionError("3,000 tokens were allowed in a context of fewer")
print(f"all as it should be, with anthropic {anthropic.__version__}")
