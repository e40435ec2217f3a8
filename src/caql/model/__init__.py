"""What a user touches: the models, after the habits of Stable-Baselines3's users."""

from caql.model.algorithms import CAQL as CAQL
from caql.model.algorithms import DDPG as DDPG
from caql.model.algorithms import MODELS as MODELS
from caql.model.algorithms import NAF as NAF
from caql.model.algorithms import SAC as SAC
from caql.model.algorithms import TD3 as TD3
from caql.model.algorithms import Certificate as Certificate
from caql.model.base import Model as Model
from caql.model.loading import load_model as load_model
