"""Bodies and queries: their fields, and what may be in them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PlainValidator,
    TypeAdapter,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError

from voicemill.errors import (
    InputError,
    InvalidTextError,
)
from voicemill.fairness import INTERACTIVE_CHARACTERS, PRIORITIES
from voicemill.formats import RESPONSE_FORMATS
from voicemill.jobs import JobStatus
from voicemill.options import OPTION_NAME
from voicemill.rollouts import BASE, REVISION_NAME, USUAL_RULE
from voicemill.tenants import TENANT_ID

MAX_BODY_BYTES: Final = 8 * 1024 * 1024
MAX_INPUTS: Final = 10_000
MAX_MEMBERS: Final = 100
"""Members of one JSON object; more would only be a long list of faults."""
MAX_FAULTS: Final = 10_000
"""Faults told in full; behind them each input that is wrong is still told of, by its first."""
DAY: Final = 24 * 60 * 60
MAX_SILENCE_MS: Final = 10_000
MAX_SEED: Final = 2**32 - 1
SHARE: Final = "(100|[0-9]{1,2})%"


def check_unicode(text: str) -> str:
    """The text, unless it holds half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise PydanticCustomError(
            InvalidTextError.code,
            "has a lone surrogate (half of a character) at position {position}",
            {"position": error.start},
        ) from error
    return text


Text = Annotated[str, AfterValidator(check_unicode)]
Name = Annotated[Text, Field(min_length=1, max_length=200)]
TenantId = Annotated[str, Field(pattern=f"^{TENANT_ID.pattern}$")]
Revision = Annotated[str, Field(pattern=f"^{REVISION_NAME.pattern}$", examples=["2026-12-fp16"])]
Language = Annotated[
    str, Field(max_length=35, pattern=r"^[A-Za-z]{2,8}(-[A-Za-z0-9]{1,8})*$", examples=["en-GB"])
]
ResponseFormat = Annotated[
    Text, Field(max_length=200, json_schema_extra={"enum": [*RESPONSE_FORMATS]})
]
"""Which of them there are is checked with the rest of what the engine can do."""
Metadata = Annotated[
    dict[
        Annotated[Text, Field(min_length=1, max_length=64)],
        Annotated[Text, Field(max_length=512)],
    ],
    Field(max_length=16, description="Up to 16 pairs that are kept and given back."),
]


Options = Annotated[
    dict[
        Annotated[str, Field(pattern=f"^{OPTION_NAME}$")],
        bool | int | float | Annotated[Text, Field(max_length=4096)],
    ],
    Field(
        max_length=32,
        description="Named options of the model; see /v1/models.",
        examples=[{"length_scale": 1.1}],
    ),
]


def check_most_failures(value: Any) -> int | str:
    """A whole number, or a share such as ``5%``."""
    is_number = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    if is_number or (isinstance(value, str) and re.fullmatch(SHARE, value)):
        return cast(int | str, value)
    raise PydanticCustomError(InputError.code, "give a number of items, or a share such as 5%")


MostFailures = Annotated[
    int | str,
    PlainValidator(check_most_failures),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 0},
                {"type": "string", "pattern": f"^{SHARE}$"},
            ],
            "examples": ["5%", 100],
        }
    ),
]


FairnessKey = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")]
FAIRNESS_KEY: Final = TypeAdapter(FairnessKey)


class Body(BaseModel):
    """A body or a part of one: no coercion, no field that nobody reads."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class Delivery(Body):
    """How a text is to be spoken; whatever is absent or null takes the default."""

    model: Name | None = Field(None, description="Engine that speaks; see /v1/models.")
    voice: Name | None = Field(None, description="Voice of the model; see /v1/voices.")
    speed: float | None = Field(None, ge=0.25, le=4.0)
    language: Language | None = Field(None, description="BCP 47 tag that the voice must speak.")
    seed: int | None = Field(None, ge=0, le=MAX_SEED)
    instructions: Annotated[Text, Field(min_length=1, max_length=4096)] | None = None
    options: Options | None = None
    response_format: ResponseFormat | None = None


DELIVERY_FIELDS: Final = tuple(Delivery.model_fields)


class JobInput(Delivery):
    """One text to speak; its fields win over those of the job."""

    custom_id: str | None = Field(
        None, description="Yours, unique in the job: 1 to 64 of A-Z a-z 0-9 . _ -"
    )
    input: str = Field(description="The text.")
    metadata: Metadata | None = None


class Expiry(Body):
    """How long something is kept."""

    anchor: Literal["completed_at"] = Field("completed_at", description="The end of the job.")
    seconds: float = Field(ge=60, le=366 * DAY)


class JobDefaults(Delivery):
    """What a job says beside its inputs."""

    metadata: Metadata | None = None
    job_class: Literal["interactive", "bulk"] | None = Field(
        None,
        alias="class",
        description="Interactive jobs go first, in the share of their tenant. A job of one text of "
        f"up to {INTERACTIVE_CHARACTERS} characters is interactive unless it says otherwise.",
    )
    priority: int = Field(
        0,
        ge=PRIORITIES[0],
        le=PRIORITIES[-1],
        description="Among your own jobs of the class; higher goes first.",
    )
    fairness_key: FairnessKey | None = Field(
        None,
        description="Your jobs with different keys share what you get; or the header "
        "X-Fairness-Key.",
    )
    deadline_seconds: float | None = Field(
        None, ge=1, le=30 * DAY, description="What has not ended so long from now expires."
    )
    output_expires_after: Expiry | None = Field(
        None,
        description="How long audio and texts are kept once the job has ended, a minute to 366 "
        "days; left out, as long as the server's VOICEMILL_RETENTION_SECONDS, maybe for ever.",
    )
    revision: Revision | None = Field(
        None,
        description="Only children that have this revision of the model speak it; see "
        "/v1/rollouts. Left out, those that there are.",
    )
    reuse: bool = Field(
        True,
        description="Texts that are to sound the same share one audio; false has each spoken anew.",
    )
    on_item_error: Literal["continue", "stop"] | None = Field(
        None, description="`stop` is short for `max_failures` 0."
    )
    max_failures: MostFailures | None = Field(
        None, description="One failed item more, by number or share, stops the job."
    )
    max_output_seconds: float | None = Field(
        None, ge=0.1, le=DAY, description="Audio that one input may give; a longer one fails."
    )
    max_item_seconds: float | None = Field(
        None, ge=0.1, le=DAY, description="Device time that one input may take, or else fails."
    )
    max_memory_mb: int | None = Field(
        None,
        ge=1,
        le=2**20,
        description="MiB of memory that a call of the model may take for an input: GPU memory "
        "where it has some. What needs more is spoken in smaller batches, or fails.",
    )
    concatenate: bool = Field(
        False,
        description="Join the audio of all items that succeed, in their order, to one file; they "
        "must have one model and one response_format. The job ends when the file is there.",
    )
    concatenate_silence_ms: int = Field(
        0, ge=0, le=MAX_SILENCE_MS, description="Silence between two items in that file."
    )


class JobCreate(JobDefaults):
    """Texts to speak, with defaults for all of them."""

    inputs: list[JobInput] = Field(min_length=1, max_length=MAX_INPUTS)


class CanaryBody(Body):
    """Who has a new revision first: a number of children or a share; one where neither is said."""

    children: int | None = Field(None, ge=1, le=10_000)
    percent: float | None = Field(
        None, gt=0, le=100, description="Of the children there are; one at least."
    )
    tenants: list[TenantId] = Field(
        default_factory=list,
        max_length=1000,
        description="These children speak for these tenants alone, and the others for all others.",
    )

    @model_validator(mode="after")
    def one_of_them(self) -> CanaryBody:
        """Children or a share of them."""
        if self.children is not None and self.percent is not None:
            raise PydanticCustomError(InputError.code, "give children or percent, not both")
        return self


class RuleBody(Body):
    """When a new revision is promoted by itself, and when it is rolled back."""

    min_attempts: int = Field(
        USUAL_RULE.min_attempts,
        ge=1,
        description="At items, by either revision, before it is judged.",
    )
    max_failure_increase: float = Field(
        USUAL_RULE.max_failure_increase,
        ge=0,
        le=1,
        description="Of the share of attempts that failed.",
    )
    max_slowdown: float = Field(
        USUAL_RULE.max_slowdown,
        ge=1,
        le=1000,
        description="Device time per audio, times the old one's.",
    )
    max_memory: float = Field(
        USUAL_RULE.max_memory,
        ge=1,
        le=1000,
        description="Memory of a child, times the old one's.",
    )


class RolloutCreate(Body):
    """A revision of a model that is to replace the one in use."""

    model: Name
    revision: Revision = Field(
        description=f"Its name. `{BASE}` is what the workers' own settings make.",
    )
    options: dict[Text, Any] | None = Field(
        None,
        max_length=100,
        description="Options of the engine, over those of the workers' settings. Leave them out "
        "for a revision that was rolled out before.",
    )
    canary: CanaryBody | None = None
    rule: RuleBody | None = Field(None, description="Left out, you promote it or roll it back.")

    @model_validator(mode="after")
    def base_has_none(self) -> RolloutCreate:
        """What the settings make has no options of its own."""
        if self.revision == BASE and self.options:
            raise PydanticCustomError(
                InputError.code, "the revision base has no options; give it another name"
            )
        return self


class Query(BaseModel):
    """Query parameters; they arrive as text."""

    model_config = ConfigDict(extra="forbid")


class JobsQuery(Query):
    """Which jobs to list."""

    status: JobStatus | None = Field(None, description="Only jobs in this state.")
    limit: int = Field(20, ge=1, le=100)
    after: str | None = Field(None, description="Id of the last job of the page before.")


class ItemsQuery(Query):
    """Which items to list."""

    limit: int = Field(100, ge=1, le=1000)
    after: str | None = Field(None, description="custom_id of the last item of the page before.")


class JobQuery(Query):
    """How to look at a job."""

    wait: float = Field(
        0, ge=0, le=60, allow_inf_nan=False, description="Seconds to wait for the job to end."
    )


class RetryQuery(Query):
    """What to run again."""

    run: int | None = Field(
        None, ge=1, description="The run whose failures are meant: sent twice, it counts once."
    )


class DeleteQuery(Query):
    """How to delete a job."""

    cancel: bool = Field(False, description="Cancel it first if it has not ended.")


class DeadLettersQuery(Query):
    """Which failed items to list."""

    limit: int = Field(100, ge=1, le=1000)
    after: str | None = Field(None, description="The page before's last_id.")


class VoiceQuery(Query):
    """Which of the voices of one name."""

    model: str | None = Field(None, description="The model whose own voice is meant.")


class VoicesQuery(Query):
    """Which voices to list."""

    model: str | None = Field(None, description="Only the voices of this model.")
    limit: int = Field(1000, ge=1, le=1000)
    after: str | None = Field(None, description="The page before's last_id.")


def without_nulls(body: Delivery) -> Mapping[str, Any]:
    """The fields of delivery that were given."""
    values = ((name, getattr(body, name)) for name in DELIVERY_FIELDS)
    return {name: value for name, value in values if value is not None}
