"""TFDS builders for tests; TFDS does not find builders defined in a test itself."""

import tensorflow_datasets as tfds

TEXT = tfds.features.Text()


class MadeQuestions(tfds.core.GeneratorBasedBuilder):
    """Questions with several answers."""

    VERSION = tfds.core.Version('1.0.0')

    def _info(self):
        features = {'question': TEXT, 'answers': tfds.features.Sequence(TEXT)}
        return tfds.core.DatasetInfo(
            builder=self, features=tfds.features.FeaturesDict(features)
        )

    def _split_generators(self, dl_manager):
        return {
            'train': self._generate_examples(6),
            'validation': self._generate_examples(2),
        }

    def _generate_examples(self, number):
        for i in range(number):
            yield i, {'question': f'né {i}?', 'answers': [f'a{i}', 'b']}


class MadeNested(MadeQuestions):
    """Lists within lists, which TFDS cannot write without TensorFlow."""

    def _info(self):
        nested = tfds.features.Sequence(tfds.features.Sequence(TEXT))
        return tfds.core.DatasetInfo(
            builder=self, features=tfds.features.FeaturesDict({'answers': nested})
        )

    def _generate_examples(self, number):
        for i in range(number):
            yield i, {'answers': [['a'], ['b', 'c']]}
