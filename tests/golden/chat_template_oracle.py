"""What Jinja2 makes of a chat template, as transformers sets it up."""

import datetime

import jinja2
from transformers.utils import chat_template_utils

# 2026-07-15 12:00:00 UTC, of which dates are made.
NOW = 1784116800


class FixedDateTime(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).replace(tzinfo=tz)


def outcome(source, values):
    """{"text"}, {"raised": the message of raise_exception}, or {"refused": "parse" or "render"}."""
    chat_template_utils.datetime = FixedDateTime
    try:
        template = chat_template_utils._compile_jinja_template(source)
    except Exception:
        return {"refused": "parse"}
    try:
        return {"text": template.render(**values)}
    except jinja2.exceptions.TemplateError as error:
        return {"raised": str(error)} if type(error) is jinja2.exceptions.TemplateError else {"refused": "render"}
    except Exception:
        return {"refused": "render"}
