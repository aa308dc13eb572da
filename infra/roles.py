"""Names the built-in roles that stacks give, for the program and for the policy that judges it."""

from __future__ import annotations

from enum import StrEnum


class Role(StrEnum):
    """Azure's built-in roles.

    https://learn.microsoft.com/azure/role-based-access-control/built-in-roles
    """

    CONTRIBUTOR = "b24988ac-6180-42a0-ab88-20f7382dd24c"
    READER = "acdd72a7-3385-48ef-bd42-f606fba81ae7"
    BLOB_DATA_CONTRIBUTOR = "ba92f5b4-2d11-453d-a403-e96b0029c9fe"
    BLOB_DATA_READER = "2a2b9908-6ea1-4ae2-8e65-a410df84e7d1"
    FILE_DATA_PRIVILEGED_CONTRIBUTOR = "69566ab7-960f-475b-8e7c-b3118f30c6bd"
    FILE_DATA_PRIVILEGED_READER = "b8eda974-7b85-4f76-af95-65846b26df6d"
    KEY_VAULT_ADMINISTRATOR = "00482a5a-887f-4fb3-b363-3b7fe8e74483"
    KEY_VAULT_SECRETS_USER = "4633458b-17de-408a-b874-0445c86b69e6"
    ACR_PULL = "7f951dda-4ed3-4680-a7ca-43fe172d538d"
    ACR_PUSH = "8311e382-0749-4cb8-b61a-304f252e45ec"
    ML_DATA_SCIENTIST = "f6c7c914-8db3-469d-8ca1-694a8f32e121"
    ML_COMPUTE_OPERATOR = "e503ece1-11d0-4e8e-8e2c-7a6c3bf38815"
    NETWORK_CONNECTION_APPROVER = "b556d68e-0be0-4f35-a333-ad7ee1ce17ea"
